"""The attention of a layer once queries and keys are normalised: a module, so that torch's own hooks see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.ops.attention import attend, attention_weights, for_all_heads


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

    def forward(self, *inputs: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """Attend as a `Call` of these arguments says; the weights are as they are multiplied with, some dropped."""
        if self._observers and torch.compiler.is_compiling():
            torch._dynamo.graph_break()
        call = Call(*inputs, **options)
        shares_keys = call.query.shape[-3] != call.key.shape[-3]
        if not call.need_weights:
            return attend(*call[:-1], shares_keys), None
        weights = attention_weights(call.query, call.key, call.scale, call.attn_mask, call.is_causal, shares_keys)
        weights = F.dropout(weights, call.dropout_p)
        return weights @ for_all_heads(call.value, call.query), weights
