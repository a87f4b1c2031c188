"""Lp normalisation of rows: scale · x / ‖x‖_p, in one pass on a CPU (`lp.cpp`).

Written with torch's operations it reads and writes its tensor half a dozen times and takes as long as the attention it
prepares. The gradient, (dy − s (x̂·dy)) / ‖x‖ with s = sign(x̂) |x̂|^(p−1), needs x and its norms, nothing else.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from qknorm.ops import _dispatch

# Exponents that are computed by products and a root, each with its double.
_TWICE = {twice / 2: twice for twice in range(1, 17)}


def scaled_lp_normalize(x: Tensor, scale: Tensor | None, p: float, eps: float) -> Tensor:
    """scale · x / ‖x‖_p over the last dimension; a scale of shape (heads,) belongs to dimension −3 of x."""
    if scale is not None:
        _check_scale(scale, x)
    if x.shape[-1] == 0:
        return x.clone()
    if _dispatch.is_left_to_torch(x, scale):
        return _formula(x, scale, p, eps)
    y: Tensor = _OPERATOR(x, scale, p, eps)[0]
    return y


def _check_scale(scale: Tensor, x: Tensor) -> None:
    heads = x.shape[-3] if x.dim() >= 3 else None
    if scale.dim() and (scale.dim() > 1 or scale.shape[0] != heads):
        shapes = "()" if heads is None else f"() or ({heads},), one per head"
        raise ValueError(f"scale must have shape {shapes}, not {tuple(scale.shape)}")
    if not scale.is_floating_point():
        raise TypeError(f"scale must hold real floating-point numbers, not {scale.dtype}")
    if scale.device != x.device and (scale.dim() or scale.device.type != "cpu"):
        raise ValueError(f"scale is on {scale.device}, but what it scales is on {x.device}")


def _plain(x: Tensor, scale: Tensor | None, p: float, eps: float) -> tuple[Tensor, Tensor]:
    """The result, and the norms of the rows (heads at dimension −2)."""
    unit, norms = _unit_and_norm(x, p, eps)
    return _laid_out(_times(unit, scale).to(x.dtype), _dispatch.rows_like(x)), norms.squeeze(-1).contiguous()


def _fake(x: Tensor, scale: Tensor | None, p: float, eps: float) -> tuple[Tensor, Tensor]:
    return _dispatch.rows_like(x), x.new_empty(x.shape[:-1], dtype=_wide(x.dtype))


def _plain_backward(
    dy: Tensor, x: Tensor, scale: Tensor | None, norms: Tensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and x̂ · dy of each row."""
    dx, dots = _gradients(dy, x, scale, norms, p, eps)
    return _laid_out(dx, _dispatch.rows_like(x)), dots.contiguous()


def _fake_backward(
    dy: Tensor, x: Tensor, scale: Tensor | None, norms: Tensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    return _dispatch.rows_like(x), torch.empty_like(norms, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, scale, ctx.p, ctx.eps = inputs
    norms = output[1]
    ctx.mark_non_differentiable(norms)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, scale, norms)


def _backward(ctx: Any, dy: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return None, None, None, None
    x, scale, norms = ctx.saved_tensors
    dx, dots = _OPERATOR_BACKWARD(dy, x, scale, norms, ctx.p, ctx.eps)
    return dx, _sum_for(scale, dots) if ctx.needs_input_grad[1] else None, None, None


def _setup_second(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    dy, x, scale, _, ctx.p, ctx.eps = inputs
    ctx.save_for_backward(dy, x, scale)


def _backward_second(ctx: Any, ddx: Tensor, ddots: Tensor) -> tuple[Tensor | None, ...]:
    """The derivative of the gradient, by way of the plain formula; the norms are a function of x there."""
    dy, x, scale = ctx.saved_tensors
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        dy, x, scale = (None if tensor is None else _leaf(tensor, again) for tensor in (dy, x, scale))
        assert dy is not None
        assert x is not None
        dx, dots = _gradients(dy, x, scale, _unit_and_norm(x, ctx.p, ctx.eps)[1].squeeze(-1), ctx.p, ctx.eps)
        inputs = [tensor for tensor in (dy, x, scale) if tensor is not None]
        found = list(torch.autograd.grad((dx, dots), inputs, (ddx, ddots), create_graph=again, allow_unused=True))
    return found[0], found[1], found[2] if scale is not None else None, None, None, None


def _leaf(tensor: Tensor, again: bool) -> Tensor:
    """Where a derivative stops; a view where it is to be differentiated again."""
    return tensor.view_as(tensor) if again and tensor.requires_grad else tensor.detach().requires_grad_()


def _gradients(
    dy: Tensor, x: Tensor, scale: Tensor | None, norms: Tensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    wide, dy = _widened(x), _widened(dy)
    norm = norms.unsqueeze(-1)
    inverse = torch.where(norm <= _floor(wide.dtype, eps), math.inf, norm).reciprocal()
    unit = wide * inverse
    dots = (unit * dy).sum(-1, keepdim=True)
    dx = _times((dy - _norm_gradient(unit, p) * dots) * inverse, scale)
    return dx.to(x.dtype), dots.squeeze(-1)


def _sum_for(scale: Tensor, dots: Tensor) -> Tensor:
    """x̂ · dy of every row, summed to the gradient of g."""
    others = [i for i in range(dots.dim()) if i != dots.dim() - 2] if scale.dim() == 1 else None
    return dots.sum(others).to(scale.dtype)


def _formula(x: Tensor, scale: Tensor | None, p: float, eps: float) -> Tensor:
    """The whole operation in plain differentiable operations."""
    unit, _ = _unit_and_norm(x, p, eps)
    return _times(unit, scale).to(x.dtype)


def _unit_and_norm(x: Tensor, p: float, eps: float) -> tuple[Tensor, Tensor]:
    """x̂ and ‖x‖_p = m (Σ(|x|/m)^p)^(1/p), m = max|x|, in the wide dtype.

    m is a constant to autograd: the norm does not depend on it. The sum is at least 1, so no root is steep at 0.
    """
    x = _widened(x)
    floor, tiny = _floor(x.dtype, eps), torch.finfo(x.dtype).tiny
    magnitude = x.abs()
    if p == math.inf:
        norm = magnitude.gather(-1, magnitude.argmax(-1, keepdim=True))
        zero = norm <= floor
        return torch.where(zero, 0.0, x / torch.where(zero, 1.0, norm)), norm
    largest = magnitude.detach().amax(-1, keepdim=True)
    empty = largest < tiny
    largest = torch.where(empty, 1.0, largest)
    # The square is taken of x itself: |x| has no second derivative at 0, where x² has one.
    total = _power((x if p == 2 else magnitude) / largest, p).sum(-1, keepdim=True)
    ratio = torch.where(empty, 1.0, total) ** (1 / p)
    norm = torch.where(empty, 0.0, largest * ratio)
    return torch.where(norm <= floor, 0.0, x / largest / ratio), norm


def _norm_gradient(unit: Tensor, p: float) -> Tensor:
    """∂‖x‖_p/∂x = sign(x̂) |x̂|^(p−1); for p = ∞ it is one-hot at the first of the largest."""
    if p == math.inf:
        largest = unit.abs().argmax(-1, keepdim=True)
        return torch.zeros_like(unit).scatter(-1, largest, unit.gather(-1, largest).sign())
    if p == 1:
        return unit.sign()
    if p == 2:
        return unit
    return unit.sign() * _power(unit.abs(), p - 1)


def _power(r: Tensor, exponent: float) -> Tensor:
    """r^exponent for r ≥ 0; a small half-integer by products and a root, which is faster than pow."""
    twice = _TWICE.get(exponent)
    if twice is None:
        return r**exponent
    factors = [r] * (twice // 2)
    if twice % 2:
        factors.append(r.clamp_min(torch.finfo(r.dtype).tiny).sqrt())  # a root at 0 has no finite derivative
    return functools.reduce(torch.mul, factors)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _widened(x: Tensor) -> Tensor:
    return x.to(_wide(x.dtype))


def _floor(dtype: torch.dtype, eps: float) -> float:
    """A norm up to this counts as zero; well below the smallest normal number its inverse would overflow."""
    return max(eps, 0.75 * torch.finfo(dtype).tiny)


def _times(x: Tensor, scale: Tensor | None) -> Tensor:
    if scale is None:
        return x
    return x * (scale.view(-1, 1, 1) if scale.dim() == 1 else scale).to(x.dtype)


def _laid_out(y: Tensor, room: Tensor) -> Tensor:
    """y as it lies in memory in `room`: a twin answers in the layout of its kernel."""
    return y if y.stride() == room.stride() else room.copy_(y)


_OPERATOR = _dispatch.operator(
    "lp_normalize(Tensor x, Tensor? scale, float p, float eps) -> (Tensor, Tensor)", _plain, _fake
)
_OPERATOR_BACKWARD = _dispatch.operator(
    "lp_normalize_backward(Tensor dy, Tensor x, Tensor? scale, Tensor norms, float p, float eps) -> (Tensor, Tensor)",
    _plain_backward,
    _fake_backward,
)
_dispatch.differentiable("lp_normalize", _backward, _setup)
_dispatch.differentiable("lp_normalize_backward", _backward_second, _setup_second)
