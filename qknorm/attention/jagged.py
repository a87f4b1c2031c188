"""Nested tensors in the jagged layout: sequences of many lengths one after another, without padding."""

from __future__ import annotations

import torch
from torch import Tensor

from qknorm.ops.lp import scaled_lp_normalize
from qknorm.ops.rotary import Rotary, RotaryTables


def normalize_jagged(x: Tensor, scale: Tensor | None, p: float, eps: float, rotary: RotaryTables | None) -> Tensor:
    """`scaled_lp_normalize` of (batch, heads, length, head_dim), where every sequence has its own length."""
    if x.layout is not torch.jagged or not isinstance(x.shape[-2], torch.SymInt):
        raise ValueError("nested queries and keys must be jagged (layout=torch.jagged) along their length")
    sequences = x.transpose(1, 2).contiguous()
    offsets: Tensor = sequences.offsets()
    tables = None if rotary is None else _of_each_row(Rotary(*rotary), offsets)
    rows = sequences.values().transpose(0, 1)  # (heads, all positions of all sequences, head_dim)
    normalized = scaled_lp_normalize(rows, scale, p, eps, tables).transpose(0, 1)
    return torch.nested.nested_tensor_from_jagged(normalized, offsets).transpose(1, 2)


def _of_each_row(rotary: Rotary, offsets: Tensor) -> Rotary:
    """The tables for each position of each sequence, from those of (length, dim) or (batch, length, dim)."""
    lengths = offsets.diff()
    longest = int(lengths.max()) if len(lengths) else 0
    if rotary.cos.shape[-2] < longest:
        raise ValueError(f"rotary has tables for {rotary.cos.shape[-2]} positions, but a sequence has {longest}")
    sequence = torch.arange(len(lengths), device=offsets.device).repeat_interleave(lengths)
    position = torch.arange(len(sequence), device=offsets.device) - offsets[:-1].repeat_interleave(lengths)
    cos, sin = (table.expand(len(lengths), *table.shape[-2:])[sequence, position] for table in rotary[:2])
    return rotary._replace(cos=cos, sin=sin)
