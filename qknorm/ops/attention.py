"""Attention over normalised queries and keys: torch's own and, with dropout on a CPU, one pass (`attention.cpp`).

torch's fused CPU attention knows no dropout. What it does instead writes six matrices of queries × keys, one of them
random numbers, and for the short sentences of translation takes several times as long. Here memory is linear, and the
dropout is drawn again, not stored. torch's also answers zeros to NaN, which is looked for and computed again.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import _dispatch, _random, checks


def takes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether the operator does this; if not, torch's own attention has to.

    That is float32 or float64 on a CPU, (batch, heads, length, head_dim), and a mask of booleans or none. Like torch's
    fused attention it has no second derivative, and is not used where that has been switched off; under autocast torch
    attends in half precision.
    """
    tensors = (query, key, value)
    return (
        _dispatch.on_cpu(*tensors, mask)
        and all(tensor.dim() == 4 and tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
        and query.dtype == key.dtype == value.dtype
        and key.shape == value.shape
        and query.shape[3] == key.shape[3]
        and query.shape[0] == key.shape[0]
        and min(*query.shape, *key.shape) > 0
        and query.shape[1] % key.shape[1] == 0
        and (mask is None or (mask.dtype is torch.bool and _is_broadcast(mask, (*query.shape[:3], key.shape[2]))))
        # What torch.nn.attention.sdpa_kernel sets, on a CPU too; torch.compile cannot ask.
        and (torch.compiler.is_compiling() or torch.backends.cuda.flash_sdp_enabled())
        and not torch.is_autocast_enabled("cpu")
        and not _dispatch.is_left_to_torch(*tensors, mask)
    )


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
    """softmax(scale · query keyᵀ) value as torch has it, but a mask may also be causal, and NaN stays visible."""
    checks.heads(query, key, value, enable_gqa)
    checks.probability("dropout_p", dropout_p)
    checks.mask(attn_mask)
    checks.mask_fits(attn_mask, query, key)
    if is_causal and attn_mask is not None:
        attn_mask, is_causal = merged(attn_mask, top_left(query, key)), False
    if dropout_p > 0 and takes(query, key, value, attn_mask):
        return in_one_pass(query, key, value, scale, attn_mask, is_causal, dropout_p)
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    if dropout_p > 0 or not out.is_cpu or _dispatch.is_left_to_torch(query, key, value):
        return out
    if _dispatch.is_traced():
        return out + torch.where(_begins_with_nan(query) | _begins_with_nan(key), math.nan, 0.0)
    if not _hides_nan(out, query, key):
        return out
    return _attend_to_nan(query, key, value, scale, attn_mask, is_causal, enable_gqa)


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
    checks.mask_fits(attn_mask, query, key)
    logits = _wide_logits(query, for_all_heads(key, query) if enable_gqa else key, scale)
    if is_causal:
        attn_mask = merged(attn_mask, top_left(query, key))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        logits = logits + attn_mask
    attends_to_nothing = (logits == -math.inf).all(-1, keepdim=True)
    return logits.masked_fill(attends_to_nothing, 0).softmax(-1).masked_fill(attends_to_nothing, 0).to(query.dtype)


def merged(attn_mask: Tensor | None, visible: Tensor) -> Tensor:
    """The mask, if any, where `visible` is True; nothing elsewhere."""
    if attn_mask is None:
        return visible
    return attn_mask & visible if attn_mask.dtype == torch.bool else attn_mask.masked_fill(~visible, -math.inf)


def top_left(query: Tensor, key: Tensor) -> Tensor:
    """What torch means by is_causal: query i sees keys 0 … i."""
    return torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()


def for_all_heads(x: Tensor, query: Tensor) -> Tensor:
    """Keys or values, (..., heads, length, head_dim), for every query head that shares them."""
    return x if x.shape[-3] == query.shape[-3] else x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3)


def in_one_pass(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    """The operator, where `takes` says yes; fewer key heads serve several query heads."""
    out: Tensor = _OPERATOR(query, key, value, scale, mask, is_causal, dropout, _random.new_seed())[0]
    return out


def _wide_logits(query: Tensor, key: Tensor, scale: float) -> Tensor:
    wide, device = torch.promote_types(query.dtype, torch.float32), query.device.type
    # Asked first: an exported program would keep even an autocast that changes nothing, as a graph of its own.
    is_autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    with torch.autocast(device, enabled=False) if is_autocast else nullcontext():
        return query.to(wide) @ key.to(wide).transpose(-2, -1) * scale


def _begins_with_nan(vectors: Tensor) -> Tensor:
    """Whether the first entry of any vector is NaN: a norm, like a projection, spreads NaN over the whole vector.

    A sum would be NaN too where infinities of both signs meet, and infinite where it leaves half precision.
    """
    return vectors.select(-1, 0).isnan().any()


@torch.no_grad()
def _hides_nan(out: Tensor, query: Tensor, key: Tensor) -> bool:
    """Whether rows are zero that should be NaN: torch's fused CPU attention takes logits of NaN for masked ones."""
    if not _dispatch.has_values(out) or not out.numel() or bool(out.select(-1, 0).all()):
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
    if takes(query, key, value, attn_mask):
        return in_one_pass(query, key, value, scale, attn_mask, is_causal, 0.0)
    weights = attention_weights(query, key, scale, attn_mask, is_causal, enable_gqa)
    return weights @ (for_all_heads(value, query) if enable_gqa else value)


def _is_broadcast(mask: Tensor, shape: tuple[int, ...]) -> bool:
    sizes = zip(mask.shape[::-1], shape[::-1], strict=False)
    return mask.dim() <= len(shape) and all(size in (1, full) for size, full in sizes)


class _Tail(NamedTuple):
    """The last arguments of both operators, in the words of their schema."""

    scale: float
    mask: Tensor | None
    is_causal: bool
    dropout: float
    seed: Tensor


_NO_GRADIENTS = (None,) * len(_Tail._fields)


def _plain(query: Tensor, key: Tensor, value: Tensor, *last: Any) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of the sum of exponentials of each query (∞ where it may look at nothing)."""
    tail = _Tail(*last)
    logits = _logits(query, key, tail)
    sums = logits.logsumexp(-1)
    sums = sums.masked_fill(sums == -math.inf, math.inf)
    weights = (logits - sums[..., None]).exp() * _factors(logits, tail)
    out = weights @ for_all_heads(value, query)
    return out.transpose(1, 2).contiguous().transpose(1, 2), sums.contiguous()


def _fake(query: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    batch, heads, queries, row = query.shape
    return query.new_empty(batch, queries, heads, row).transpose(1, 2), query.new_empty(batch, heads, queries)


def _plain_backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, sums: Tensor, *last: Any
) -> tuple[Tensor, Tensor, Tensor]:
    tail = _Tail(*last)
    weights = (_logits(query, key, tail) - sums[..., None]).exp()
    factors = _factors(weights, tail)
    d_value = (weights * factors).transpose(-2, -1) @ d_out
    d_weights = d_out @ for_all_heads(value, query).transpose(-2, -1) * factors
    d_logits = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True)) * tail.scale
    d_query, d_key = d_logits @ for_all_heads(key, query), d_logits.transpose(-2, -1) @ query
    gradients = (d_query, _of_key_heads(d_key, key), _of_key_heads(d_value, value))
    d_query, d_key, d_value = (
        _dispatch.rows_like(x).copy_(gradient) for x, gradient in zip((query, key, value), gradients, strict=True)
    )
    return d_query, d_key, d_value


def _fake_backward(
    d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _dispatch.rows_like(query), _dispatch.rows_like(key), _dispatch.rows_like(value)


def _logits(query: Tensor, key: Tensor, tail: _Tail) -> Tensor:
    """(batch, heads, queries, keys)."""
    logits = query @ for_all_heads(key, query).transpose(-2, -1) * tail.scale
    if tail.mask is not None:
        logits = logits.masked_fill(~tail.mask, -math.inf)
    return logits.masked_fill(~top_left(query, key), -math.inf) if tail.is_causal else logits


def _factors(logits: Tensor, tail: _Tail) -> Tensor:
    """In the shape of the logits: 0 where a weight is dropped, 1 / (1 − p) elsewhere."""
    rows = logits.shape[0] * logits.shape[1] * logits.shape[2]
    if tail.dropout == 0:
        return torch.ones_like(logits)
    kept = _random.kept(tail.seed, rows, logits.shape[3], tail.dropout, logits.device)
    return (kept * _random.factor(tail.dropout)).to(logits.dtype).view(logits.shape)


def _of_key_heads(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of heads that served several, summed."""
    group = gradient.shape[1] // max(x.shape[1], 1)
    return gradient.view(gradient.shape[0], x.shape[1], group, *gradient.shape[2:]).sum(2)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    _dispatch.keep(ctx, *inputs[:3], output[1], *inputs[3:])


def _backward(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    gradients = (None,) * 3 if d_out is None else _OPERATOR_BACKWARD(d_out, *_dispatch.kept(ctx))
    return *gradients, *_NO_GRADIENTS


_TAIL = "float scale, Tensor? mask, bool is_causal, float dropout, Tensor seed"
_OPERATOR = _dispatch.operator(
    f"attention(Tensor query, Tensor key, Tensor value, {_TAIL}) -> (Tensor, Tensor)", _plain, _fake, _backward, _setup
)
_OPERATOR_BACKWARD = _dispatch.operator(
    f"attention_backward(Tensor d_out, Tensor query, Tensor key, Tensor value, Tensor sums, {_TAIL}) "
    "-> (Tensor, Tensor, Tensor)",
    _plain_backward,
    _fake_backward,
)
