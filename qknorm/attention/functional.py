"""Attention with Lp-normalised queries and keys, in the shape of torch's scaled_dot_product_attention.

Tensors are (..., heads, length, head_dim), unless a layout is named. g is folded into the queries, so that its gradient
flows and torch's fused kernels, which take no learnable scale, can be used.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.attention.jagged import normalize_jagged
from qknorm.attention.lp import DEFAULT_EPS, checked_p, normalize_rotated
from qknorm.attention.rotary import RotaryTables
from qknorm.ops import attention as with_dropout
from qknorm.ops import checks, has_values, is_left_to_torch, is_traced

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
    normalize = normalize_jagged if query.is_nested or key.is_nested else normalize_rotated
    queries = normalize(queries, _as_tensor(scale, query), p, eps, rotary)
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


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> Tensor:
    """Attend over queries and keys that are already normalised, as torch does; a mask may also be causal."""
    checks.heads(query, key, value, enable_gqa)
    checks.probability("dropout_p", dropout_p)
    checks.mask(attn_mask)
    if is_causal and attn_mask is not None:
        attn_mask, is_causal = merged(attn_mask, top_left(query, key)), False
    if dropout_p > 0 and with_dropout.takes(query, key, value, attn_mask):
        return with_dropout.attend(query, key, value, scale, attn_mask, is_causal, dropout_p)
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    if dropout_p > 0 or not out.is_cpu or is_left_to_torch(query, key, value):
        return out
    if is_traced():
        return out + torch.where(_begins_with_nan(query) | _begins_with_nan(key), math.nan, 0.0)
    if not _hides_nan(out, query, key):
        return out
    return _attend_to_nan(query, key, value, scale, attn_mask, is_causal, enable_gqa)


def _begins_with_nan(vectors: Tensor) -> Tensor:
    """Whether the first entry of any vector is NaN: a norm, like a projection, spreads NaN over the whole vector.

    A sum would be NaN too where infinities of both signs meet, and infinite where it leaves half precision.
    """
    return vectors.select(-1, 0).isnan().any()


@torch.no_grad()
def _hides_nan(out: Tensor, query: Tensor, key: Tensor) -> bool:
    """Whether rows are zero that should be NaN: torch's fused CPU attention takes logits of NaN for masked ones."""
    if not has_values(out) or not out.numel() or bool(out.select(-1, 0).all()):
        return False
    return bool(query.isnan().any() or key.isnan().any())


def _attend_to_nan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    attn_mask: Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> Tensor:
    """Attention in which NaN stays visible."""
    if with_dropout.takes(query, key, value, attn_mask):
        return with_dropout.attend(query, key, value, scale, attn_mask, is_causal, 0.0)
    weights = attention_weights(query, key, scale, attn_mask, is_causal, enable_gqa)
    if enable_gqa:
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
    return weights @ value


def attention_weights(
    query: Tensor,
    key: Tensor,
    scale: float,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> Tensor:
    """The probabilities of `attend`, in the dtype of the query, from logits in float32 or wider even under autocast."""
    checks.heads(query, key, key, enable_gqa)
    checks.mask(attn_mask)
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    logits = _wide_logits(query, key, scale)
    if is_causal:
        attn_mask = merged(attn_mask, top_left(query, key))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        logits = logits + attn_mask
    attends_to_nothing = (logits == -math.inf).all(-1, keepdim=True)
    return logits.masked_fill(attends_to_nothing, 0).softmax(-1).masked_fill(attends_to_nothing, 0).to(query.dtype)


def _wide_logits(query: Tensor, key: Tensor, scale: float) -> Tensor:
    wide, device = torch.promote_types(query.dtype, torch.float32), query.device.type
    # Asked first: an exported program would keep even an autocast that changes nothing, as a graph of its own.
    is_autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    with torch.autocast(device, enabled=False) if is_autocast else nullcontext():
        return query.to(wide) @ key.to(wide).transpose(-2, -1) * scale


def merged(attn_mask: Tensor | None, visible: Tensor) -> Tensor:
    """The mask, if any, where `visible` is True; nothing elsewhere."""
    if attn_mask is None:
        return visible
    return attn_mask & visible if attn_mask.dtype == torch.bool else attn_mask.masked_fill(~visible, -math.inf)


def top_left(query: Tensor, key: Tensor) -> Tensor:
    """What torch means by is_causal: query i sees keys 0 … i."""
    return torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()


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


def _as_tensor(scale: Tensor | float, query: Tensor) -> Tensor:
    if isinstance(scale, Tensor):
        return scale
    return torch.tensor(float(scale), device=query.device, dtype=torch.promote_types(query.dtype, torch.float32))
