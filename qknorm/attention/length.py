"""g that grows with the number of keys, so that attention stays as sharp among many as among few."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

LengthScaling: TypeAlias = Callable[[Tensor], Tensor]
"""From how many keys each query sees, as floats, to a factor of its logits."""


@dataclass(frozen=True)
class LogLength:
    """ln n / ln n₀: among n orthogonal keys the perfect one keeps its weight, since its logit grows like ln n.

    reference: n₀, the number of keys for which g is meant.
    """

    reference: float = 1024.0

    def __post_init__(self) -> None:
        if not self.reference > 1:
            raise ValueError(f"the reference of LogLength must be above 1 key, not {self.reference!r}")

    def __call__(self, seen: Tensor) -> Tensor:
        return seen.log() / math.log(self.reference)


def length_scaling_of(given: Literal["log"] | LengthScaling | None) -> LengthScaling | None:
    """What an argument `length_scaling` means."""
    if given is None or callable(given):
        return given
    if given == "log":
        return LogLength()
    raise ValueError(f'length_scaling must be "log", a function of the number of keys or None, not {given!r}')


def scaled_for_length(
    query: Tensor, scaling: LengthScaling, keys: int, attn_mask: Tensor | None, is_causal: bool
) -> Tensor:
    """Multiply queries, (batch, heads, queries, head_dim), by the factor for the keys each may see, at least one."""
    if attn_mask is not None:
        seen = is_visible(attn_mask).expand(*attn_mask.shape[:-1], keys).sum(-1, keepdim=True)
    elif is_causal:
        seen = torch.arange(1, query.shape[-2] + 1, device=query.device)[:, None].clamp_max(keys)
    else:
        seen = torch.full((), keys, device=query.device)
    wide = torch.promote_types(query.dtype, torch.float32)
    return (query * scaling(seen.clamp_min(1).to(wide))).to(query.dtype)


def is_visible(attn_mask: Tensor) -> Tensor:
    """True where a mask lets a query attend: also where masks of floats hold the smallest number for −∞."""
    return attn_mask if attn_mask.dtype == torch.bool else attn_mask > torch.finfo(attn_mask.dtype).min
