"""An experiment: the exponent of the norm as a parameter, p = 1 + softplus(θ)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import LpNorm, one_dimensional


class LearnedLpNorm(nn.Module):
    """scale · x / ‖x‖_p over the last dimension, with a learnable θ of shape () or (heads,), by plain operations.

    Queries and keys share one p: the keys' norm is made by `for_keys` and has no parameter of its own.
    """

    def __init__(self, p: float, scale: nn.Parameter | None, heads: int | None) -> None:
        super().__init__()
        if not 1 < p < math.inf:
            raise ValueError(f"a learned p starts above 1 and below infinity, not at {p:g}: p = 1 + softplus(θ)")
        theta = math.log(math.expm1(p - 1))
        self.theta = nn.Parameter(torch.full(() if heads is None else (heads,), theta))
        self.scale = scale

    @property
    def p(self) -> Tensor:
        return 1 + F.softplus(self.theta)

    def for_keys(self) -> _KeyNorm:
        return _KeyNorm(self)

    def forward(self, x: Tensor) -> Tensor:
        unit = normalize(x, _per_head(self.p))
        return unit if self.scale is None else unit * _per_head(self.scale)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        one_dimensional(state_dict, prefix + "scale")
        super()._load_from_state_dict(state_dict, prefix, *others)


class _KeyNorm(nn.Module):
    """The same p without the scale."""

    def __init__(self, queries: LearnedLpNorm) -> None:
        super().__init__()
        self._queries = (queries,)  # a tuple hides it from torch: a parameter must belong to one module only

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, _per_head(self._queries[0].p))


def learn_p(attention: QKNormAttention, per_head: bool) -> None:
    """Make the p of an attention with qk_norm="lp" learnable, one for the layer or one per head."""
    norm = attention.q_norm
    assert isinstance(norm, LpNorm)
    queries = LearnedLpNorm(norm.p, norm.scale, attention.num_heads if per_head else None)
    attention.q_norm, attention.k_norm = queries, queries.for_keys()


def normalize(x: Tensor, p: Tensor) -> Tensor:
    """x / ‖x‖_p = x / (m (Σ(|x|/m)^p)^(1/p)), m = max|x|, differentiable in x and in p; a zero vector stays zero."""
    magnitude = x.abs()
    largest = magnitude.detach().amax(-1, keepdim=True)
    largest = torch.where(largest < torch.finfo(x.dtype).tiny, 1.0, largest)
    total = ((magnitude / largest) ** p).sum(-1, keepdim=True)
    total = torch.where(total == 0, 1.0, total)
    return x / largest / total ** (1 / p)


def _per_head(value: Tensor) -> Tensor:
    return value.view(-1, 1, 1) if value.dim() else value
