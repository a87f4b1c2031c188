"""Attention with Lp-normalised queries and keys, in the shape of torch's scaled_dot_product_attention.

Tensors are (..., heads, length, head_dim), unless a layout is named. g is folded into the queries, so that its gradient
flows and torch's fused kernels, which take no learnable scale, can be used.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from qknorm.attention.jagged import normalize_jagged
from qknorm.attention.lp import DEFAULT_EPS, checked_p
from qknorm.ops.attention import attend, attention_weights
from qknorm.ops.lp import scaled_lp_normalize
from qknorm.ops.rotary import RotaryTables

Layout: TypeAlias = Literal["bhld", "blhd"]
"""(batch, heads, length, head_dim), or (batch, length, heads, head_dim) as flash-attn has it."""


def qk_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Tensor | float,
    *,
    p: float = 2.0,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    rotary: RotaryTables | None = None,
) -> Tensor:
    """softmax(g · q̂ k̂ᵀ) v with q̂ = q/‖q‖_p and k̂ = k/‖k‖_p (Henry et al. 2020, equation 5; any p since 2026).

    query: (..., heads, queries, head_dim); key, value: (..., heads, keys, head_dim), or fewer heads with
    `enable_gqa`. scale: g, of shape (), (1,) or (heads,), or a number. attn_mask: True where a query may attend, or
    floats to add; broadcast to (..., heads, queries, keys). is_causal: query i sees keys 0 … i, even with a mask.
    rotary: (cos, sin) of the positions, by which normalised queries and keys are rotated; see `Rotary`.
    A query that may attend to nothing returns zeros. Memory grows linearly with length, except for a mask combined
    with is_causal, and with dropout on a CPU without a C++ compiler.
    """
    query, key = normalize_qk(query, key, scale, p, rotary=rotary)
    return attend(query, key, value, 1.0, attn_mask, is_causal, dropout_p, enable_gqa)


def qk_attention_weights(
    query: Tensor,
    key: Tensor,
    scale: Tensor | float,
    *,
    p: float = 2.0,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    rotary: RotaryTables | None = None,
) -> Tensor:
    """The probabilities softmax(g · q̂ k̂ᵀ) that `qk_attention` gives the values, (..., heads, queries, keys).

    Use it for inspection: memory grows with the product of the lengths.
    """
    query, key = normalize_qk(query, key, scale, p, rotary=rotary)
    return attention_weights(query, key, 1.0, attn_mask, is_causal, enable_gqa)


def normalize_qk(
    query: Tensor,
    key: Tensor,
    scale: Tensor | float,
    p: float = 2.0,
    *,
    layout: Layout = "bhld",
    rotary: RotaryTables | None = None,
    eps: float = DEFAULT_EPS,
) -> tuple[Tensor, Tensor]:
    """Return g · q̂ and k̂, rotated if asked for: the inputs of any attention kernel with a softmax scale of 1.

    layout: "bhld" is (batch, heads, length, head_dim), "blhd" (batch, length, heads, head_dim); queries and keys keep
    their layout and dtypes. Both may be nested tensors in the jagged layout: rotary positions then count from the
    start of each sequence, and tables may be longer than it.
    """
    p = checked_p(p)
    queries, keys = _in_usual_layout(query, key, layout)
    normalize = normalize_jagged if query.is_nested or key.is_nested else scaled_lp_normalize
    queries = normalize(queries, _as_tensor(scale, query, p), p, eps, rotary)
    keys = normalize(keys, None, p, eps, rotary)
    return (queries, keys) if layout == "bhld" else (queries.transpose(-3, -2), keys.transpose(-3, -2))


def causal_mask(
    queries: int, keys: int, *, window: int | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Return (queries, keys), True where a sequence's last queries may attend: the last sees all keys, the one before
    it all but the last, etc.; with a window, each sees at most that many. torch's is_causal counts from the first."""
    past = keys - queries
    visible = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(past)
    return visible if window is None else visible.triu(past - window + 1)


def _in_usual_layout(query: Tensor, key: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    if not (query.is_floating_point() and key.is_floating_point()):
        raise TypeError(f"query and key must hold real floating-point numbers, not {query.dtype} and {key.dtype}")
    if query.dim() < 3 or key.dim() < 3:
        raise ValueError(
            "query and key must be (..., heads, length, head_dim); "
            f"got shapes {tuple(query.shape)} and {tuple(key.shape)}"
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key differ in head_dim: {query.shape[-1]} and {key.shape[-1]}")
    if layout not in ("bhld", "blhd"):
        raise ValueError(f'layout must be "bhld" or "blhd", not {layout!r}')
    return (query, key) if layout == "bhld" else (query.transpose(-3, -2), key.transpose(-3, -2))


def _as_tensor(scale: Tensor | float, query: Tensor, p: float) -> Tensor:
    if isinstance(scale, Tensor):
        return scale
    # The cosines that g multiplies grow with p, and so beyond p = 2 a start below 1 may be as sharp as it should be.
    if scale < 1 and (p <= 2 or scale <= query.shape[-1] ** -0.5):
        raise ValueError(
            f"scale is g, which multiplies numbers up to 1, and not torch's 1/√head_dim: with {scale:g} all keys get "
            "nearly the same weight; start it at henry_scale(length) or comparable_scale(p, head_dim, √head_dim) "
            "(a tensor may hold any g)"
        )
    return torch.tensor(float(scale), device=query.device, dtype=torch.promote_types(query.dtype, torch.float32))
