"""Attention of single queries to what several of them have in common (`shared_attention.cpp`): decoding with beams.

On a CPU nothing is copied for each query; elsewhere its keys and values are, and torch's own attention does the rest.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import _dispatch, checks


def attend_to_history(query: Tensor, keys: Tensor, values: Tensor, history: Tensor, scale: float) -> Tensor:
    """One new position of each hypothesis against a cache that beams have in common.

    query: (rows, heads, 1, head_dim). keys, values: (slots, key heads, room, head_dim). history: (rows, length), the
    slot in which each position of a hypothesis lies. Returns (rows, heads, 1, head_dim).
    """
    if _is_served(query, keys, values):
        out: Tensor = _TO_HISTORY(query, keys, values, history, scale)
        return out
    return _plain_history(query, keys, values, history, scale)


def attend_to_shared(
    query: Tensor, keys: Tensor, values: Tensor, entries: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """One position of each hypothesis against memories that several have in common.

    query: (rows, heads, 1, head_dim). keys, values: (batch, key heads, length, head_dim). entries: (rows,), whose
    memory each looks at. lengths: (batch,), how many of its positions are real. Returns (rows, heads, 1, head_dim).
    """
    checks.shared_memories(query, keys, values, entries, lengths)
    if _is_served(query, keys, values):
        out: Tensor = _TO_SHARED(query, keys, values, entries, lengths, scale)
        return out
    return _plain_shared(query, keys, values, entries, lengths, scale)


def _is_served(*tensors: Tensor) -> bool:
    """For inference on a CPU."""
    return (
        _dispatch.on_cpu(*tensors)
        and not _dispatch.is_differentiated(*tensors)
        and not _dispatch.is_left_to_torch(*tensors)
    )


def _plain_history(query: Tensor, keys: Tensor, values: Tensor, history: Tensor, scale: float) -> Tensor:
    return _attended(query, gathered(keys, history), gathered(values, history), None, scale)


def gathered(side: Tensor, history: Tensor) -> Tensor:
    """The positions of each row, from the slots in which they lie."""
    index = history[:, None, :, None].expand(-1, side.shape[1], -1, side.shape[3])
    return side[:, :, : history.shape[1]].gather(0, index)


def _plain_shared(
    query: Tensor, keys: Tensor, values: Tensor, entries: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    if entries.is_cpu and _dispatch.has_values(entries, lengths):  # elsewhere looking would wait for the device
        checks.shared_ranges(keys, entries, lengths)
    is_real = torch.arange(keys.shape[2], device=query.device) < lengths.index_select(0, entries)[:, None]
    keys, values = keys.index_select(0, entries), values.index_select(0, entries)
    return _attended(query, keys, values, is_real[:, None, None, :], scale)


def _attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    keys, values = keys.to(query.dtype), values.to(query.dtype)  # a cache has the type of what came first
    shares = query.shape[1] != keys.shape[1]
    return F.scaled_dot_product_attention(query, keys, values, mask, scale=scale, enable_gqa=shares).contiguous()


def _fake_history(query: Tensor, keys: Tensor, values: Tensor, history: Tensor, scale: float) -> Tensor:
    return query.new_empty(*query.shape[:3], values.shape[3])


def _fake_shared(query: Tensor, keys: Tensor, values: Tensor, entries: Tensor, lengths: Tensor, scale: float) -> Tensor:
    return query.new_empty(*query.shape[:3], values.shape[3])


_TO_HISTORY = _dispatch.operator(
    "attend_to_history(Tensor query, Tensor keys, Tensor values, Tensor history, float scale) -> Tensor",
    _plain_history,
    _fake_history,
)
_TO_SHARED = _dispatch.operator(
    "attend_to_shared(Tensor query, Tensor keys, Tensor values, Tensor entries, Tensor lengths, float scale) -> Tensor",
    _plain_shared,
    _fake_shared,
)
