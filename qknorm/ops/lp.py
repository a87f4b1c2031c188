"""Lp normalisation of rows, times g, turned by rotary positions: R · g · x / ‖x‖_p, in one pass on a CPU (`lp.cpp`).

Written with torch's operations it reads and writes its tensor half a dozen times and takes as long as the attention it
prepares. The gradient, g (u − s (x̂·u)) / ‖x‖ with s = sign(x̂) |x̂|^(p−1) and u = Rᵀ dy, needs x and its norms, nothing
else.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qknorm.ops import _dispatch
from qknorm.ops.rotary import Rotary, RotaryTables, rotary_for, turned, turned_back

# Exponents that are computed by products and a root, each with its double.
_TWICE = {twice / 2: twice for twice in range(1, 17)}


def scaled_lp_normalize(
    x: Tensor, scale: Tensor | None, p: float, eps: float, tables: RotaryTables | None = None
) -> Tensor:
    """scale · x / ‖x‖_p over the last dimension, then turned; x is (..., heads, length, head_dim).

    A scale has shape (), (1,) or (heads,). Where cos or sin need a gradient, plain operations give it.
    """
    if scale is not None:
        _check_scale(scale, x)
    if x.shape[-1] == 0:
        return x.clone()
    if tables is not None:
        return _turned(x, scale, p, eps, rotary_for(x, tables))
    if _dispatch.is_left_to_torch(x, scale):
        return _formula(x, scale, p, eps, None)
    y: Tensor = _OPERATOR(x, scale, p, eps, None, None, False)[0]
    return y


def _turned(x: Tensor, scale: Tensor | None, p: float, eps: float, rotary: Rotary) -> Tensor:
    cos, sin, pairing = rotary
    if _dispatch.is_left_to_torch(x, scale, cos, sin) or _dispatch.is_differentiated(cos, sin):
        return _formula(x, scale, p, eps, rotary)
    y: Tensor = _OPERATOR(x, scale, p, eps, cos, sin, pairing == "interleaved")[0]
    return y


def _check_scale(scale: Tensor, x: Tensor) -> None:
    heads = x.shape[-3] if x.dim() >= 3 else 1
    if scale.dim() and (scale.dim() > 1 or scale.shape[0] not in (1, heads)):
        shapes = f"(), (1,) or ({heads},), one per head" if heads > 1 else "() or (1,)"
        raise ValueError(f"scale must have shape {shapes}, not {tuple(scale.shape)}")
    if not scale.is_floating_point():
        raise TypeError(f"scale must hold real floating-point numbers, not {scale.dtype}")
    if scale.device != x.device and (scale.dim() or scale.device.type != "cpu"):
        raise ValueError(f"scale is on {scale.device}, but what it scales is on {x.device}")


class _Tail(NamedTuple):
    """The last arguments of all these operators, in the words of their schema."""

    p: float
    eps: float
    cos: Tensor | None = None
    sin: Tensor | None = None
    interleaved: bool = False

    @property
    def rotary(self) -> Rotary | None:
        if self.cos is None or self.sin is None:
            return None
        return Rotary(self.cos, self.sin, "interleaved" if self.interleaved else "half")


_NO_GRADIENTS = (None,) * len(_Tail._fields)


def _plain(x: Tensor, scale: Tensor | None, *last: Any) -> tuple[Tensor, Tensor]:
    """The result, and the norms of the rows (heads at dimension −2)."""
    tail = _Tail(*last)
    unit, norms = _unit_and_norm(x, tail.p, tail.eps)
    y = _times_and_turned(unit, scale, tail.rotary)
    return _laid_out(y.to(x.dtype), _dispatch.rows_like(x)), norms.squeeze(-1).contiguous()


def _fake(x: Tensor, scale: Tensor | None, *last: Any) -> tuple[Tensor, Tensor]:
    return _dispatch.rows_like(x), x.new_empty(x.shape[:-1], dtype=_wide(x.dtype))


def _plain_backward(dy: Tensor, x: Tensor, scale: Tensor | None, norms: Tensor, *last: Any) -> tuple[Tensor, Tensor]:
    """The gradient of x, and that of g (of one number, where there is none)."""
    dx, dg = _gradients(dy, x, scale, norms, _Tail(*last))
    return _laid_out(dx, _dispatch.rows_like(x)), dg


def _fake_backward(dy: Tensor, x: Tensor, scale: Tensor | None, norms: Tensor, *last: Any) -> tuple[Tensor, Tensor]:
    return _dispatch.rows_like(x), norms.new_empty(()) if scale is None else scale.new_empty(scale.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    _dispatch.keep(ctx, *inputs[:2], output[1], *inputs[2:])


def _backward(ctx: Any, dy: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    _refuse_gradient_of_tables(ctx.needs_input_grad[4:6])
    dx, dg = (None, None) if dy is None else _OPERATOR_BACKWARD(dy, *_dispatch.kept(ctx))
    return dx, dg if ctx.needs_input_grad[1] else None, *_NO_GRADIENTS


def _refuse_gradient_of_tables(needed: tuple[bool, ...]) -> None:
    if any(needed):
        raise RuntimeError("qknorm::lp_normalize has no gradient for cos and sin: use scaled_lp_normalize, which has")


def _setup_second(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _dispatch.keep(ctx, *inputs)


def _backward_second(ctx: Any, ddx: Tensor, ddg: Tensor) -> tuple[Tensor | None, ...]:
    """The derivative of the gradient, by way of the plain formula; the norms are a function of x there."""
    dy, x, scale, _, *last = _dispatch.kept(ctx)
    again, tail = torch.is_grad_enabled(), _Tail(*last)
    with torch.enable_grad():
        dy, x, scale = (None if tensor is None else _leaf(tensor, again) for tensor in (dy, x, scale))
        assert dy is not None
        assert x is not None
        norms = _unit_and_norm(x, tail.p, tail.eps)[1].squeeze(-1)
        first = _gradients(dy, x, scale, norms, tail)
        inputs = [tensor for tensor in (dy, x, scale) if tensor is not None]
        second = list(torch.autograd.grad(first, inputs, (ddx, ddg), create_graph=again, allow_unused=True))
    return second[0], second[1], second[2] if scale is not None else None, None, *_NO_GRADIENTS


def _leaf(tensor: Tensor, again: bool) -> Tensor:
    """Where a derivative stops; a view where it is to be differentiated again."""
    return tensor.view_as(tensor) if again and tensor.requires_grad else tensor.detach().requires_grad_()


def _gradients(dy: Tensor, x: Tensor, scale: Tensor | None, norms: Tensor, tail: _Tail) -> tuple[Tensor, Tensor]:
    wide, dy = _widened(x), _widened(dy)
    dy = dy if tail.rotary is None else turned_back(dy, tail.rotary)
    norm = norms.unsqueeze(-1)
    inverse = torch.where(norm <= _floor(wide.dtype, tail.eps), math.inf, norm).reciprocal()
    unit = wide * inverse
    dots = (unit * dy).sum(-1, keepdim=True)
    dx = _times((dy - _norm_gradient(unit, tail.p) * dots) * inverse, scale)
    return dx.to(x.dtype), _sum_for(scale, dots.squeeze(-1))


def _sum_for(scale: Tensor | None, dots: Tensor) -> Tensor:
    """x̂ · u of every row, summed to the gradient of g."""
    if scale is None:
        return dots.sum()
    others = [i for i in range(dots.dim()) if i != dots.dim() - 2] if scale.numel() != 1 else None
    return dots.sum(others).to(scale.dtype).view(scale.shape)


def _formula(x: Tensor, scale: Tensor | None, p: float, eps: float, rotary: Rotary | None) -> Tensor:
    """The whole operation in plain differentiable operations."""
    unit, _ = _unit_and_norm(x, p, eps)
    return _times_and_turned(unit, scale, rotary).to(x.dtype)


def _times_and_turned(unit: Tensor, scale: Tensor | None, rotary: Rotary | None) -> Tensor:
    y = _times(unit, scale)
    return y if rotary is None else turned(y, rotary)


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
    return x * (scale.view(()) if scale.numel() == 1 else scale.view(-1, 1, 1)).to(x.dtype)


def _laid_out(y: Tensor, room: Tensor) -> Tensor:
    """y as it lies in memory in `room`: a twin answers in the layout of its kernel."""
    return y if y.stride() == room.stride() else room.copy_(y)


_TAIL = "float p, float eps, Tensor? cos=None, Tensor? sin=None, bool interleaved=False"
_OPERATOR = _dispatch.operator(
    f"lp_normalize(Tensor x, Tensor? scale, {_TAIL}) -> (Tensor, Tensor)", _plain, _fake, _backward, _setup
)
_OPERATOR_BACKWARD = _dispatch.operator(
    f"lp_normalize_backward(Tensor dy, Tensor x, Tensor? scale, Tensor norms, {_TAIL}) -> (Tensor, Tensor)",
    _plain_backward,
    _fake_backward,
    _backward_second,
    _setup_second,
)
