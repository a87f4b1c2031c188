"""The attention of a layer once queries and keys are normalised: a module, so that torch's own hooks see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.ops.attention import attend, attention_weights


class Call(NamedTuple):
    """The arguments of an `AttentionCore`; query, key and value are (batch, heads, length, head_dim)."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    attn_mask: Tensor | None = None
    is_causal: bool = False
    dropout_p: float = 0.0
    need_weights: bool = False


class AttentionCore(nn.Module):
    """softmax(scale · query keyᵀ) value and, where they are needed, the weights; it has no parameters.

    A forward hook on it sees queries with g and keys, normalised and rotated, as they meet. Key heads may be fewer than
    query heads. Single decoding steps, over a cache or a memory that was prepared, pass it by.
    """

    def __init__(self) -> None:
        super().__init__()
        self._observers = 0  # compiled code is guarded by this number, as it is not by hooks that come later

    @contextmanager
    def shown_to(self, hook: Callable[..., None]) -> Iterator[None]:
        """Call a forward hook, with keywords, also where this has been compiled by somebody before."""
        handle = self.register_forward_hook(torch.compiler.disable(hook), with_kwargs=True)
        self._observers += 1
        try:
            yield
        finally:
            self._observers -= 1
            handle.remove()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        dropout_p: float = 0.0,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if self._observers and torch.compiler.is_compiling():
            torch._dynamo.graph_break()
        shares_keys = query.shape[-3] != key.shape[-3]
        if not need_weights:
            return attend(query, key, value, scale, attn_mask, is_causal, dropout_p, shares_keys), None
        weights = F.dropout(attention_weights(query, key, scale, attn_mask, is_causal, shares_keys), dropout_p)
        if shares_keys:
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
        return weights @ value, weights
