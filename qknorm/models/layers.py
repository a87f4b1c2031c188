"""The parts that the translator and the language model share.

Tensors are (batch, length, dim).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.attention.lp import lp_normalize
from qknorm.attention.norms import LpNorm
from qknorm.ops.cross_entropy import linear_cross_entropy
from qknorm.ops.dropout import add_dropped, relu_dropout

NormKind = Literal["layer", "scale", "rms"]
Placement = Literal["pre", "post"]


def make_norm(kind: NormKind, dim: int) -> nn.Module:
    """LayerNorm, RMSNorm, or ScaleNorm (Nguyen and Salazar 2019): g · x/‖x‖ with one g that starts at √dim."""
    if kind == "layer":
        return nn.LayerNorm(dim)
    if kind == "rms":
        return nn.RMSNorm(dim)
    return LpNorm(dim)


class Residual(nn.Module):
    """x + sublayer(norm(x)) with the norm before, or norm(x + sublayer(x)) with the norm after."""

    def __init__(self, dim: int, norm: NormKind, placement: Placement, dropout: float) -> None:
        super().__init__()
        self.norm = make_norm(norm, dim)
        self.placement, self.dropout = placement, dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.placement == "pre":
            return add_dropped(x, sublayer(self.norm(x)), self.dropout, self.training)
        normalized: Tensor = self.norm(add_dropped(x, sublayer(x), self.dropout, self.training))
        return normalized


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, started as in the first paper."""

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=math.sqrt(2 / (dim + hidden)))
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outer(relu_dropout(self.inner(x), self.dropout, self.training))
        return out


class Embedding(nn.Module):
    """Vectors of pieces, shared by both languages and by the output layer.

    With FixNorm (Nguyen and Chiang 2018) each vector has length 1 wherever it is used: √dim times that as input, the
    same unscaled as output weights.
    """

    def __init__(self, pieces: int, dim: int, fix_norm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(pieces, dim))
        self.output_bias = nn.Parameter(torch.zeros(pieces))
        self.fix_norm, self.input_scale = fix_norm, math.sqrt(dim)
        if fix_norm:
            nn.init.uniform_(self.weight, -0.01, 0.01)
        else:
            nn.init.normal_(self.weight, std=dim**-0.5)

    @torch.no_grad()
    def start_at(self, directions: Tensor) -> None:
        """Start from vectors of length 1, (pieces, dim). With FixNorm their length sets how fast Adam turns them."""
        self.weight.copy_(directions)

    def vectors(self) -> Tensor:
        """(pieces, dim), normalised if they are to be. Computed once per step, used for inputs and outputs."""
        return lp_normalize(self.weight) if self.fix_norm else self.weight

    def embed(self, numbers: Tensor, vectors: Tensor) -> Tensor:
        """(batch, length, dim) of piece numbers (batch, length)."""
        return F.embedding(numbers, vectors) * self.input_scale


class VocabularyLoss(nn.Module):
    """The mean loss over a vocabulary. It is a module, without parameters, so that its precision can be chosen."""

    def forward(self, states: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float) -> Tensor:
        """states: (positions, dim); weight: (pieces, dim); target: (positions,), the right piece."""
        return linear_cross_entropy(states, weight, bias, target, smoothing)


def widened(vectors: Tensor, dim: int, norm: NormKind, fix_norm: bool) -> Tensor:
    """(…, less than dim) as (…, dim), of which a norm makes √(width/dim) times the same, and zeros behind it.

    LayerNorm takes the mean away, whatever it is, and so that lengths stay as they are it must be less of more numbers.
    """
    width = vectors.shape[-1]
    if norm != "layer" or width == dim:
        return F.pad(vectors, (0, dim - width))
    mean = vectors.mean(-1, keepdim=True)
    return F.pad(vectors - mean, (0, dim - width)) + mean * (math.sqrt(width / dim) if fix_norm else 1.0)


def sinusoids(length: int, dim: int, device: torch.device | None = None, start: int = 0) -> Tensor:
    """(length, dim): sines in the first half, cosines in the second, wavelengths from 2π to 10000 · 2π."""
    half = dim // 2
    frequencies = torch.exp(torch.arange(half, device=device) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(start, start + length, device=device)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)
