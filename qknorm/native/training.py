"""Dropout and the loss over a vocabulary, as training on a CPU wants them (`training.cpp`).

torch draws a dropout mask number by number and keeps it for the backward pass; here whether an element is dropped is
a hash of a seed and its place, computed again where it is needed. The loss of torch passes over the logits (tokens ×
vocabulary, the largest tensor of all) six times; here they are made, turned into their gradient and used up in blocks
that stay in the cache. The seed comes from torch's generator, so that a run can be repeated and resumed. Everywhere
but on float32 tensors of a CPU, torch's own operations do the same.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.native import checks, compiler

# Rows of logits at a time: with 8,000 classes 16 MB, few enough to be still in the cache when they are used.
_ROWS_OF_LOGITS = 512
# torch would leave out rows that want class −100; here no number stands for a row without a class.
_NO_CLASS = -(2**62)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout."""
    checks.probability("p", p)
    if not training or p == 0:
        return x
    if _kernels_for(x) is None:
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, None, p, _seed())
    return dropped


def add_dropped(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """residual + F.dropout(x), of the same shape."""
    checks.probability("p", p)
    if not training or p == 0:
        return residual + x
    if residual.shape != x.shape or _kernels_for(x, residual) is None:
        return residual + F.dropout(x, p)
    out: Tensor = _Dropout.apply(x, residual, p, _seed())
    return out


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout(F.relu(x))."""
    checks.probability("p", p)
    if not training or p == 0:
        return F.relu(x)
    if _kernels_for(x) is None:
        return F.dropout(F.relu(x), p)
    out: Tensor = _ReluDropout.apply(x, p, _seed())
    return out


def linear_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor, label_smoothing: float
) -> Tensor:
    """F.cross_entropy(F.linear(states, weight, bias), wanted): states (rows, dim), weight (classes, dim)."""
    checks.loss(states, weight, bias, wanted, label_smoothing)
    if not states.shape[0] or _kernels_for(states, weight, bias, indices=(wanted,)) is None:
        if wanted.is_cpu and not compiler.is_transformed(wanted):  # elsewhere looking would wait for the device
            checks.wanted_classes(wanted, weight.shape[0])
        logits = F.linear(states, weight, bias)
        return F.cross_entropy(logits, wanted, label_smoothing=label_smoothing, ignore_index=_NO_CLASS)
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (states, weight, bias))
    loss: Tensor = _LinearCrossEntropy.apply(states, weight, bias, wanted, label_smoothing, needs_gradient)
    return loss


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        return _dropped(x, residual, p, seed)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        d_out = compiler.in_memory(d_out)
        checks.memory(d_out)
        return _dropped(d_out, None, ctx.p, ctx.seed), d_out if ctx.needs_input_grad[1] else None, None, None


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        kernel = compiler.required(_kernels()).relu_dropout
        kernel(x.data_ptr(), out.data_ptr(), x.numel(), p, seed, compiler.threads(x.numel()))
        ctx.save_for_backward(out)
        ctx.p = p
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        d_out = compiler.in_memory(d_out).contiguous()
        checks.memory(out, d_out)
        d_x = torch.empty_like(out)
        threads = compiler.threads(out.numel())
        compiler.required(_kernels()).relu_dropout_backward(
            out.data_ptr(), d_out.data_ptr(), d_x.data_ptr(), out.numel(), ctx.p, threads
        )  # fmt: skip
        return d_x, None, None


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made with the loss, while the logits are at hand; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor, smoothing: float, with_gradient: bool
    ) -> Tensor:
        kernels = compiler.required(_kernels())
        states, wanted, rows, classes = states.contiguous(), wanted.contiguous(), len(states), len(weight)
        losses = states.new_empty(rows)
        d_states, d_weight, d_bias = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
        for start in range(0, rows, _ROWS_OF_LOGITS):
            block = slice(start, start + _ROWS_OF_LOGITS)
            logits = torch.addmm(bias, states[block], weight.t())
            missing = kernels.cross_entropy(
                logits.data_ptr(), wanted[block].data_ptr(), losses[block].data_ptr(), len(logits), classes, smoothing,
                1 / rows, compiler.threads(logits.numel()),
            )  # fmt: skip
            if missing:
                checks.wanted_classes(wanted, classes)
            if with_gradient:
                torch.mm(logits, weight, out=d_states[block])
                d_weight.addmm_(logits.t(), states[block])
                d_bias += logits.sum(0)
        ctx.save_for_backward(d_states, d_weight, d_bias)
        return losses.mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * d_loss for gradient in ctx.saved_tensors), None, None, None


def _dropped(x: Tensor, residual: Tensor | None, p: float, seed: int) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    beside = None if residual is None else residual.contiguous()
    compiler.required(_kernels()).dropout(
        x.data_ptr(), None if beside is None else beside.data_ptr(), out.data_ptr(), x.numel(), p, seed,
        compiler.threads(x.numel()),
    )  # fmt: skip
    return out


def _seed() -> int:
    return int(torch.randint(2**63 - 1, (), device="cpu"))


def _kernels_for(*tensors: Tensor, indices: tuple[Tensor, ...] = ()) -> ctypes.CDLL | None:
    fit = all(tensor.dtype == torch.float32 for tensor in tensors) and not torch.is_autocast_enabled("cpu")
    return _kernels() if fit and compiler.can_serve(*tensors, *indices) else None


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    loaded = compiler.load("training.cpp")
    if loaded is not None:
        pointer, real, integer, seed, threads = (
            ctypes.c_void_p,
            ctypes.c_float,
            ctypes.c_int64,
            ctypes.c_uint64,
            ctypes.c_int,
        )
        loaded.dropout.argtypes = [pointer, pointer, pointer, integer, real, seed, threads]
        loaded.relu_dropout.argtypes = [pointer, pointer, integer, real, seed, threads]
        loaded.relu_dropout_backward.argtypes = [pointer, pointer, pointer, integer, real, threads]
        loaded.cross_entropy.argtypes = [pointer, pointer, pointer, integer, integer, real, real, threads]
        for kernel in (loaded.dropout, loaded.relu_dropout, loaded.relu_dropout_backward):
            kernel.restype = None
        loaded.cross_entropy.restype = ctypes.c_int
    return loaded
