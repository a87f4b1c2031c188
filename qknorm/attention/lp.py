"""Lp normalisation: x / ‖x‖_p for any p from 1 to infinity, safe from the smallest to the largest numbers.

Three routes give the same numbers:

- the CPU kernel of `native/lp.py`, the usual one on a CPU;
- torch's operations with the same closed-form backward: other devices, float64, no compiler;
- `_formula`, plain differentiable operations that every transform of torch understands: `torch.compile`,
  `torch.export`, `torch.func`, forward-mode derivatives, tensor subclasses, tracing.
"""

from __future__ import annotations

import functools
import math
import numbers
from typing import Any

import torch
from torch import Tensor

from qknorm.native import checks
from qknorm.native import lp as native
from qknorm.native.compiler import is_transformed

_DEFAULT_EPS = 1e-12
# From here on the norm is the largest entry to within float32's rounding, and powers would lose all precision.
_AS_GOOD_AS_INFINITE = 1e6


def lp_normalize(x: Tensor, p: float = 2.0, dim: int = -1, eps: float = _DEFAULT_EPS) -> Tensor:
    """Divide x by its Lp norm along `dim`, so that every vector there gets norm 1.

    The norm is taken in float32 (float64 for float64 input), with the largest entry divided out where that matters,
    so that neither huge nor tiny entries overflow or vanish; the result has the dtype of x. A vector whose norm is at
    most `eps` becomes zero and receives a zero gradient. The gradient, (dy − s (x̂·dy)) / ‖x‖ with
    s = sign(x̂) |x̂|^(p−1), is orthogonal to x. It can be differentiated again for p ≥ 2.
    """
    if not x.is_floating_point():
        raise TypeError(f"lp_normalize needs a tensor of real floating-point numbers, not {x.dtype}")
    if x.dim() == 0:
        raise ValueError("lp_normalize needs a tensor with at least one dimension")
    return scaled_lp_normalize(x.movedim(dim, -1), None, checked_p(p), eps).movedim(-1, dim)


def checked_p(p: float) -> float:
    """p as a float, or a ValueError that says what it must be."""
    if isinstance(p, bool) or not isinstance(p, (int, float, numbers.Real)) or not p >= 1:
        raise ValueError(f"p must be a number from 1 to infinity (math.inf), not {p!r}")
    return math.inf if p > _AS_GOOD_AS_INFINITE else float(p)


def scaled_lp_normalize(x: Tensor, scale: Tensor | None, p: float, eps: float = _DEFAULT_EPS) -> Tensor:
    """scale · x / ‖x‖_p over the last dimension; a scale of shape (heads,) belongs to dimension −3 of x."""
    if scale is not None:
        _check_scale(scale, x)
    if x.shape[-1] == 0:
        return x.clone()
    if is_transformed(x) or (scale is not None and is_transformed(scale)):
        return _formula(x, scale, p, eps)
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or (scale is not None and scale.requires_grad))
    if with_gradient:
        y: Tensor = _ScaledLpNormalize.apply(x, scale, p, eps)
        return y
    return _forward(x, scale, p, eps)[0]


class _Seen:
    not_finite = False


def have_all_been_finite() -> bool:
    """Whether everything was finite that was normalised on a CPU since the program began.

    Attention asks, because torch's own on a CPU hides what is not a number, and looking for it costs time. The answer
    comes with the normalisation, for nothing.
    """
    return not _Seen.not_finite


def _check_scale(scale: Tensor, x: Tensor) -> None:
    heads = x.shape[-3] if x.dim() >= 3 else None
    if scale.dim() and (scale.dim() > 1 or scale.shape[0] != heads):
        shapes = "()" if heads is None else f"() or ({heads},), one per head"
        raise ValueError(f"scale must have shape {shapes}, not {tuple(scale.shape)}")
    if not scale.is_floating_point():
        raise TypeError(f"scale must hold real floating-point numbers, not {scale.dtype}")
    if scale.device != x.device and (scale.dim() or scale.device.type != "cpu"):
        raise ValueError(f"scale is on {scale.device}, but what it scales is on {x.device}")


class _ScaledLpNormalize(torch.autograd.Function):
    """Keeps x and its norms for the backward pass, nothing else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor | None, p: float, eps: float) -> Tensor:
        y, norms, ctx.kernel = _forward(x, scale, p, eps)
        ctx.save_for_backward(x, scale, norms)
        ctx.p, ctx.eps = p, eps
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, norms = ctx.saved_tensors
        if x.is_cpu:  # memory may have been freed since the first pass, and no operation of torch looks
            checks.memory(x)
        if torch.is_grad_enabled():  # create_graph: the gradient itself must be differentiable
            # Views, so that the derivative stops at x and at scale even where one was made from the other.
            x, scale = x.view_as(x), None if scale is None else scale.view_as(scale)
            inputs = [tensor for tensor in (x, scale) if tensor is not None and tensor.requires_grad]
            y = _formula(x, scale, ctx.p, ctx.eps)
            found = iter(torch.autograd.grad(y, inputs, dy, create_graph=True))
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
        batched = torch._C._functorch.is_legacy_batchedtensor(dy) or is_transformed(dy)
        if ctx.kernel is None or batched:
            dx, dots = _backward_operations(x, scale, norms.view(x.shape[:-1]), dy, ctx.p, ctx.eps)
        else:
            dx, dots = ctx.kernel.backward(x, norms, dy, scale, ctx.p, _floor(torch.float32, ctx.eps))
        d_scale = None
        if ctx.needs_input_grad[1]:
            others = [i for i in range(dots.dim()) if i != dots.dim() - 2] if scale.dim() == 1 else None
            d_scale = dots.sum(others).to(scale.dtype)
        return dx, d_scale, None, None


def _forward(x: Tensor, scale: Tensor | None, p: float, eps: float) -> tuple[Tensor, Tensor, native.Kernel | None]:
    """The result, the norms of the rows (heads at dimension −2), and the kernel that was used, if any."""
    kernel = native.kernel_for(x, p)
    if kernel is not None:
        y, norms, is_finite = kernel.forward(x, scale, p, _floor(torch.float32, eps))
    else:
        with torch.no_grad():
            unit, norms = _unit_and_norm(x, p, eps)
            y, norms = _times(unit, scale).to(x.dtype), norms.squeeze(-1)
            is_finite = not y.is_cpu or bool((norms.sum() if scale is None else norms.sum() + scale.sum()).isfinite())
    if not is_finite:
        _Seen.not_finite = True
    return y, norms, kernel


def _backward_operations(
    x: Tensor, scale: Tensor | None, norms: Tensor, dy: Tensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    """The gradient of x, and x̂ · dy of each row."""
    wide, dy = _widened(x), _widened(dy)
    norm = norms.unsqueeze(-1)
    inverse = torch.where(norm <= _floor(wide.dtype, eps), math.inf, norm).reciprocal()
    unit = wide * inverse
    dots = (unit * dy).sum(-1, keepdim=True)
    dx = _times((dy - _norm_gradient(unit, p) * dots) * inverse, scale)
    return dx.to(x.dtype), dots.squeeze(-1)


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
    twice = native.TWICE.get(exponent)
    if twice is None:
        return r**exponent
    factors = [r] * (twice // 2)
    if twice % 2:
        factors.append(r.clamp_min(torch.finfo(r.dtype).tiny).sqrt())  # a root at 0 has no finite derivative
    return functools.reduce(torch.mul, factors)


def _widened(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _floor(dtype: torch.dtype, eps: float) -> float:
    """A norm up to this counts as zero; well below the smallest normal number its inverse would overflow."""
    return max(eps, 0.75 * torch.finfo(dtype).tiny)


def _times(x: Tensor, scale: Tensor | None) -> Tensor:
    if scale is None:
        return x
    return x * (scale.view(-1, 1, 1) if scale.dim() == 1 else scale).to(x.dtype)
