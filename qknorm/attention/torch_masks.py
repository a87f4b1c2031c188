"""The masks of torch's nn.MultiheadAttention, True = may not attend: what it refuses, and both of them as one of ours.

Errors are torch's in kind and words, which other people's programs and tests rely on.
"""

from __future__ import annotations

import functools
import math
import warnings

import torch
from torch import Tensor


def check_kinds(attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> None:
    """Booleans or floats, and preferably both masks alike."""
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
            raise AssertionError(f"only bool and floating types of {name} are supported")
    if attn_mask is not None and key_padding_mask is not None and attn_mask.dtype != key_padding_mask.dtype:
        warnings.warn(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.",
            stacklevel=2,
        )


def merged_mask(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    shape: tuple[int, int, int, int],
    added_keys: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """Both masks as one for (batch, heads, queries, keys): True where a query may attend, or floats.

    Every query may attend to the keys that are added at the end, which `shape` does not count.
    """
    masks = []
    if attn_mask is not None:
        masks.append(_of_heads(attn_mask, shape))
    if key_padding_mask is not None:
        masks.append(_of_keys(key_padding_mask, shape))
    if not masks:
        return None
    merged = _merged(masks, dtype)
    if added_keys:
        merged = torch.nn.functional.pad(merged, (0, added_keys))
    return ~merged if merged.dtype == torch.bool else merged


def _of_heads(attn_mask: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    """(queries, keys), or (batch, heads, queries, keys)."""
    batch, heads, queries, keys = shape
    expected = (queries, keys) if attn_mask.dim() == 2 else (batch * heads, queries, keys)
    if attn_mask.shape != expected:
        given = f"{attn_mask.dim()}D attn_mask is {attn_mask.shape}"
        raise RuntimeError(f"The shape of the {given}, but should be {expected}.")
    return attn_mask if attn_mask.dim() == 2 else attn_mask.unflatten(0, (batch, heads))


def _of_keys(key_padding_mask: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    """(batch, 1, 1, keys)."""
    mask = key_padding_mask if key_padding_mask.dim() == 2 else key_padding_mask.unsqueeze(0)
    for dim, expected in enumerate((shape[0], shape[3])):
        if mask.shape[dim] != expected:
            raise AssertionError(f"Expected key_padded_mask.shape[{dim}] to be {expected}, but got {mask.shape[dim]}")
    return mask[:, None, None, :]


def _merged(masks: list[Tensor], dtype: torch.dtype) -> Tensor:
    """What any of them forbids; their sum where one has floats."""
    if all(mask.dtype == torch.bool for mask in masks):
        return functools.reduce(torch.logical_or, masks)
    return functools.reduce(torch.add, (_as_floats(mask, dtype) for mask in masks))


def _as_floats(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return mask if mask.is_floating_point() else torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
