"""Dropout in one pass over memory (`dropout.cpp`): alone, of a residual sum, and after a ReLU.

torch draws a mask number by number and keeps it for the backward pass; here nothing is kept but a seed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import _dispatch, _random, checks

# Elements that share one key of the random bits, as in dropout.cpp.
_ROW = 1024


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout."""
    checks.probability("p", p)
    if not training or p == 0:
        return x
    if not _is_served(x):
        return F.dropout(x, p)
    dropped: Tensor = _DROPOUT(x, None, p, _random.new_seed())
    return dropped


def add_dropped(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """residual + F.dropout(x), of the same shape."""
    checks.probability("p", p)
    if not training or p == 0:
        return residual + x
    if residual.shape != x.shape or residual.dtype != x.dtype or not _is_served(x, residual):
        return residual + F.dropout(x, p)
    out: Tensor = _DROPOUT(x, residual, p, _random.new_seed())
    return out


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout(F.relu(x))."""
    checks.probability("p", p)
    if not training or p == 0:
        return F.relu(x)
    if not _is_served(x):
        return F.dropout(F.relu(x), p)
    out: Tensor = _RELU_DROPOUT(x, p, _random.new_seed())
    return out


def _is_served(*tensors: Tensor) -> bool:
    """On a GPU torch's own dropout is one pass already."""
    return _dispatch.on_cpu(*tensors) and not _dispatch.is_left_to_torch(*tensors)


def _factors(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """In the shape of x: 0 where an element is dropped, 1 / (1 − p) elsewhere."""
    rows = -(-x.numel() // _ROW)
    kept = _random.kept(seed, rows, _ROW, p, x.device).flatten()[: x.numel()]
    return (kept * _random.factor(p)).to(torch.promote_types(x.dtype, torch.float32)).view(x.shape)


def _plain(x: Tensor, residual: Tensor | None, p: float, seed: Tensor) -> Tensor:
    dropped = x * _factors(x, p, seed)
    return (dropped if residual is None else residual + dropped).to(x.dtype).contiguous()


def _fake(x: Tensor, residual: Tensor | None, p: float, seed: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, _, ctx.p, seed = inputs
    ctx.save_for_backward(seed)


def _backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    (seed,) = ctx.saved_tensors
    d_x = _DROPOUT(d_out, None, ctx.p, seed) if ctx.needs_input_grad[0] else None
    return d_x, d_out if ctx.needs_input_grad[1] else None, None, None


def _plain_relu(x: Tensor, p: float, seed: Tensor) -> Tensor:
    return (F.relu(x) * _factors(x, p, seed)).to(x.dtype).contiguous()


def _fake_relu(x: Tensor, p: float, seed: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _plain_relu_backward(d_out: Tensor, out: Tensor, p: float) -> Tensor:
    """What was positive after relu and dropout was neither dropped nor negative."""
    return (d_out * ((out > 0) * _random.factor(p))).to(out.dtype).contiguous()


def _fake_relu_backward(d_out: Tensor, out: Tensor, p: float) -> Tensor:
    return torch.empty_like(out, memory_format=torch.contiguous_format)


def _setup_relu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.p = inputs[1]
    ctx.save_for_backward(output)


def _backward_relu(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    (out,) = ctx.saved_tensors
    return _RELU_DROPOUT_BACKWARD(d_out, out, ctx.p), None, None


def _setup_relu_second(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, out, ctx.p = inputs
    ctx.save_for_backward(out)


def _backward_relu_second(ctx: Any, dd: Tensor) -> tuple[Tensor | None, ...]:
    """It is linear in the gradient, and flat in `out`."""
    (out,) = ctx.saved_tensors
    return _RELU_DROPOUT_BACKWARD(dd, out, ctx.p), None, None


_DROPOUT = _dispatch.operator(
    "dropout(Tensor x, Tensor? residual, float p, Tensor seed) -> Tensor", _plain, _fake, _backward, _setup
)
_RELU_DROPOUT = _dispatch.operator(
    "relu_dropout(Tensor x, float p, Tensor seed) -> Tensor", _plain_relu, _fake_relu, _backward_relu, _setup_relu
)
_RELU_DROPOUT_BACKWARD = _dispatch.operator(
    "relu_dropout_backward(Tensor d_out, Tensor out, float p) -> Tensor",
    _plain_relu_backward,
    _fake_relu_backward,
    _backward_relu_second,
    _setup_relu_second,
)
