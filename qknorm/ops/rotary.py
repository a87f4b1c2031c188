"""Rotary positions (Su et al. 2021): pairs of entries of each head are turned by angles that grow with position."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

Pairing: TypeAlias = Literal["half", "interleaved"]


class Rotary(NamedTuple):
    """Cosines and sines of the angles, (length, rotary_dim) or (batch, length, rotary_dim), one for each entry.

    pairing: "half" turns entry i with entry i + rotary_dim/2, as transformers does; "interleaved" turns entries
    2i and 2i + 1. Entries of a head beyond rotary_dim are unchanged.
    """

    cos: Tensor
    sin: Tensor
    pairing: Pairing = "half"


RotaryTables: TypeAlias = Rotary | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Pairing]
"""What functions take: a `Rotary`, or the same as a plain tuple."""


def rotary_for(x: Tensor, tables: RotaryTables) -> Rotary:
    """The tables, if they fit to queries or keys (..., heads, length, head_dim)."""
    rotary = Rotary(*tables)
    cos, sin, pairing = rotary
    if pairing not in ("half", "interleaved"):
        raise ValueError(f'the pairing of rotary must be "half" or "interleaved", not {pairing!r}')
    if cos.shape != sin.shape or not _fits(cos, x):
        length, dim = (1, *x.shape)[-2:]
        allowed = f"({length}, rotary_dim) or (batch, {length}, rotary_dim), rotary_dim even and at most {dim}"
        raise ValueError(f"cos and sin of rotary must be {allowed}; got {tuple(cos.shape)} and {tuple(sin.shape)}")
    for name, table in (("cos", cos), ("sin", sin)):
        if not table.is_floating_point():
            raise TypeError(f"{name} of rotary must hold real floating-point numbers, not {table.dtype}")
        if table.device != x.device:
            raise ValueError(f"{name} of rotary is on {table.device}, but what it turns is on {x.device}")
    return rotary


def _fits(table: Tensor, x: Tensor) -> bool:
    if x.dim() < 2 or not (table.dim() == 2 or (table.dim() == 3 and x.dim() == 4)):
        return False
    length, dim = table.shape[-2:]
    of_batch = table.dim() == 2 or table.shape[0] in (1, x.shape[0])
    return of_batch and length == x.shape[-2] and 0 < dim <= x.shape[-1] and dim % 2 == 0


def rotate(x: Tensor, tables: RotaryTables) -> Tensor:
    """Turn queries or keys to their positions in the wider type of theirs and the tables; the result has theirs."""
    rotary = rotary_for(x, tables)
    return turned(x.to(torch.promote_types(x.dtype, rotary.cos.dtype)), rotary).to(x.dtype)


def turned(x: Tensor, rotary: Rotary) -> Tensor:
    """x turned by its positions, in plain differentiable operations and in the dtype of x."""
    cos, sin = _tables(rotary, x)
    pairs, rest = _split(x, cos.shape[-1])
    pairs = pairs * cos + _quarter_turn(pairs, rotary.pairing) * sin
    return pairs if not rest.shape[-1] else torch.cat((pairs, rest), -1)


def turned_back(y: Tensor, rotary: Rotary) -> Tensor:
    """The transpose of `turned`."""
    cos, sin = _tables(rotary, y)
    pairs, rest = _split(y, cos.shape[-1])
    return torch.cat((pairs * cos - _quarter_turn(pairs * sin, rotary.pairing), rest), -1)


def _tables(rotary: Rotary, x: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin in the dtype of x, for all heads."""
    cos, sin = rotary.cos.to(x.dtype), rotary.sin.to(x.dtype)
    return (cos, sin) if cos.dim() == 2 else (cos.unsqueeze(1), sin.unsqueeze(1))


def _split(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return x[..., :dim], x[..., dim:]


def _quarter_turn(x: Tensor, pairing: Pairing) -> Tensor:
    """Each pair (a, b) becomes (−b, a)."""
    if pairing == "interleaved":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)
