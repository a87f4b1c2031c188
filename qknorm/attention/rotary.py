"""Rotary positions (Su et al. 2021): pairs of entries of each head are rotated by angles that grow with position."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from qknorm.ops.lp import Rotation, rotated

Pairing: TypeAlias = Literal["half", "interleaved"]


class Rotary(NamedTuple):
    """Cosines and sines of the angles, (length, rotary_dim) or (batch, length, rotary_dim), one for each entry.

    pairing: "half" rotates entry i with entry i + rotary_dim/2, as transformers does; "interleaved" rotates entries
    2i and 2i + 1. Entries of a head beyond rotary_dim are unchanged.
    """

    cos: Tensor
    sin: Tensor
    pairing: Pairing = "half"


RotaryTables: TypeAlias = Rotary | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Pairing]
"""What functions take: a `Rotary`, or the same as a plain tuple."""


def rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing = "half") -> Tensor:
    """Rotate queries or keys, (..., heads, length, head_dim), to their positions; the result has the dtype of x."""
    rotation, wide = rotation_of((cos, sin, pairing), x), torch.promote_types(x.dtype, cos.dtype)
    return rotated(x.to(wide), rotation).to(x.dtype)


def rotation_of(rotary: RotaryTables, x: Tensor) -> Rotation:
    """What operators take, checked against what it is to turn."""
    cos, sin, pairing = Rotary(*rotary)
    _check(x, cos, sin, pairing)
    return Rotation(cos, sin, pairing == "interleaved")


def _check(x: Tensor, cos: Tensor, sin: Tensor, pairing: Pairing) -> None:
    if pairing not in ("half", "interleaved"):
        raise ValueError(f'the pairing of rotary must be "half" or "interleaved", not {pairing!r}')
    length, width = x.shape[-2], cos.shape[-1]
    fits = cos.dim() == 2 or (cos.dim() == 3 and x.dim() == 4 and cos.shape[0] in (1, x.shape[0]))
    if not fits or cos.shape != sin.shape or cos.shape[-2] != length or width % 2 or not 0 < width <= x.shape[-1]:
        allowed = f"({length}, rotary_dim) or (batch, {length}, rotary_dim), rotary_dim even and at most {x.shape[-1]}"
        raise ValueError(f"cos and sin of rotary must be {allowed}; got {tuple(cos.shape)} and {tuple(sin.shape)}")
