"""Attention with dropout on a CPU (`attention.cpp`): linear in memory, and the dropout drawn again, not stored.

torch's fused CPU attention knows no dropout. What it does instead writes six matrices of queries × keys, one of them
random numbers, and for the short sentences of translation takes several times as long.
"""

from __future__ import annotations

import math
from typing import Any

import torch
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
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    """softmax(scale · query keyᵀ) value where `takes` says yes; fewer key heads serve several query heads."""
    checks.probability("dropout_p", dropout)
    out: Tensor = _OPERATOR(query, key, value, scale, mask, is_causal, dropout, _random.new_seed())[0]
    return out


def _is_broadcast(mask: Tensor, shape: tuple[int, ...]) -> bool:
    sizes = zip(mask.shape[::-1], shape[::-1], strict=False)
    return mask.dim() <= len(shape) and all(size in (1, full) for size, full in sizes)


def _plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    is_causal: bool,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithm of the sum of exponentials of each query (∞ where it may look at nothing)."""
    logits = _logits(query, key, scale, mask, is_causal)
    sums = logits.logsumexp(-1)
    sums = sums.masked_fill(sums == -math.inf, math.inf)
    weights = (logits - sums[..., None]).exp() * _factors(logits, dropout, seed)
    out = weights @ _for_all_heads(value, query)
    return out.transpose(1, 2).contiguous().transpose(1, 2), sums.contiguous()


def _fake(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    is_causal: bool,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    batch, heads, queries, row = query.shape
    return query.new_empty(batch, queries, heads, row).transpose(1, 2), query.new_empty(batch, heads, queries)


def _plain_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sums: Tensor,
    scale: float,
    mask: Tensor | None,
    is_causal: bool,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    weights = (_logits(query, key, scale, mask, is_causal) - sums[..., None]).exp()
    factors = _factors(weights, dropout, seed)
    d_value = (weights * factors).transpose(-2, -1) @ d_out
    d_weights = d_out @ _for_all_heads(value, query).transpose(-2, -1) * factors
    d_logits = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True)) * scale
    d_query, d_key = d_logits @ _for_all_heads(key, query), d_logits.transpose(-2, -1) @ query
    gradients = (d_query, _of_key_heads(d_key, key), _of_key_heads(d_value, value))
    d_query, d_key, d_value = (
        _dispatch.rows_like(x).copy_(gradient) for x, gradient in zip((query, key, value), gradients, strict=True)
    )
    return d_query, d_key, d_value


def _fake_backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sums: Tensor,
    scale: float,
    mask: Tensor | None,
    is_causal: bool,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return _dispatch.rows_like(query), _dispatch.rows_like(key), _dispatch.rows_like(value)


def _logits(query: Tensor, key: Tensor, scale: float, mask: Tensor | None, is_causal: bool) -> Tensor:
    """(batch, heads, queries, keys)."""
    logits = query @ _for_all_heads(key, query).transpose(-2, -1) * scale
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    if is_causal:
        past = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~past, -math.inf)
    return logits


def _factors(logits: Tensor, dropout: float, seed: Tensor) -> Tensor:
    """In the shape of the logits: 0 where a weight is dropped, 1 / (1 − p) elsewhere."""
    rows = logits.shape[0] * logits.shape[1] * logits.shape[2]
    if dropout == 0:
        return torch.ones_like(logits)
    kept = _random.kept(seed, rows, logits.shape[3], dropout, logits.device)
    return (kept * _random.factor(dropout)).to(logits.dtype).view(logits.shape)


def _for_all_heads(x: Tensor, query: Tensor) -> Tensor:
    return x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)


def _of_key_heads(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of heads that served several, summed."""
    group = gradient.shape[1] // max(x.shape[1], 1)
    return gradient.view(gradient.shape[0], x.shape[1], group, *gradient.shape[2:]).sum(2)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, ctx.scale, mask, ctx.is_causal, ctx.dropout, seed = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, key, value, output[1], mask, seed)


def _backward(ctx: Any, d_out: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if d_out is None:
        return (None,) * 8
    query, key, value, sums, mask, seed = ctx.saved_tensors
    gradients = _OPERATOR_BACKWARD(d_out, query, key, value, sums, ctx.scale, mask, ctx.is_causal, ctx.dropout, seed)
    return *gradients, None, None, None, None, None


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
