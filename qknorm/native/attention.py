"""The CPU kernel of attention (`attention.cpp`): float32, boolean masks, dropout that is drawn again, not stored.

torch's fused CPU attention knows no dropout. What it does instead writes six matrices of queries × keys, one of them
random numbers, and for the short sentences of translation takes several times as long.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from qknorm.native import checks, compiler


def can_attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernel does this: float32, (batch, heads, length, head_dim), a boolean mask or none.

    Like torch's fused attention it has no second derivative, and is not used where that has been switched off.
    """
    tensors = (query, key, value) if mask is None else (query, key, value, mask)
    return (
        compiler.can_serve(*tensors)
        and all(tensor.dim() == 4 and tensor.dtype is torch.float32 for tensor in tensors[:3])
        and key.shape == value.shape
        and query.shape[3] == key.shape[3]
        and query.shape[0] == key.shape[0]
        and min(*query.shape, *key.shape) > 0
        and query.shape[1] % key.shape[1] == 0
        and (mask is None or (mask.dtype is torch.bool and _is_broadcast(mask, (*query.shape[:3], key.shape[2]))))
        and torch.backends.cuda.flash_sdp_enabled()  # what torch.nn.attention.sdpa_kernel sets, on a CPU too
        and _kernels() is not None
    )


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    is_causal: bool,
    dropout: float,
) -> Tensor:
    """softmax(scale · query keyᵀ) value where `can_attend` says yes; fewer key heads serve several query heads."""
    seed = int(torch.randint(2**63 - 1, (), device="cpu")) if dropout else 0
    if mask is not None:
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    out: Tensor = _Attend.apply(query, key, value, scale, mask, is_causal, dropout, seed)
    return out


class _Attend(torch.autograd.Function):
    """Keeps its inputs and one number per query for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        mask: Tensor | None,
        is_causal: bool,
        dropout: float,
        seed: int,
    ) -> Tensor:
        kernels = compiler.required(_kernels())
        query, key, value = _with_rows(query), _with_rows(key), _with_rows(value)
        batch, heads, queries, row = query.shape
        out = query.new_empty(batch, queries, heads, row).transpose(1, 2)  # what the next projection reads in order
        sums = query.new_empty(batch, heads, queries)
        shape = (batch, heads, key.shape[1], queries, key.shape[2], row, int(is_causal))
        kernels.attention_forward(
            query.data_ptr(), key.data_ptr(), value.data_ptr(), out.data_ptr(), sums.data_ptr(), _pointer(mask),
            compiler.numbers(shape), _strides(query, key, value, out), _mask_strides(mask), scale, dropout, seed,
            compiler.threads(query.numel()),
        )  # fmt: skip
        ctx.save_for_backward(query, key, value, mask, sums)
        ctx.shape, ctx.scale, ctx.dropout, ctx.seed = shape, scale, dropout, seed
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels = compiler.required(_kernels())
        query, key, value, mask, sums = ctx.saved_tensors
        d_out = _with_rows(compiler.in_memory(d_out))
        checks.memory(query, key, value, sums, d_out, *(() if mask is None else (mask,)))
        d_query, d_key, d_value = (torch.empty_like(tensor) for tensor in (query, key, value))
        kernels.attention_backward(
            query.data_ptr(), key.data_ptr(), value.data_ptr(), d_out.data_ptr(), d_query.data_ptr(), d_key.data_ptr(),
            d_value.data_ptr(), sums.data_ptr(), _pointer(mask), compiler.numbers(ctx.shape),
            _strides(query, key, value, d_out, d_query, d_key, d_value), _mask_strides(mask), ctx.scale, ctx.dropout,
            ctx.seed, compiler.threads(query.numel()),
        )  # fmt: skip
        return d_query, d_key, d_value, None, None, None, None, None


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    loaded = compiler.load("attention.cpp")
    if loaded is not None:
        pointer, real = ctypes.c_void_p, ctypes.c_float
        numbers = (real, real, ctypes.c_uint64, ctypes.c_int)
        loaded.attention_forward.argtypes = (*[pointer] * 9, *numbers)
        loaded.attention_backward.argtypes = (*[pointer] * 12, *numbers)
        loaded.attention_forward.restype = loaded.attention_backward.restype = None
    return loaded


def _is_broadcast(mask: Tensor, shape: tuple[int, ...]) -> bool:
    sizes = zip(mask.shape[::-1], shape[::-1], strict=False)
    return mask.dim() <= len(shape) and all(size in (1, wanted) for size, wanted in sizes)


def _with_rows(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 and not x.is_neg() else x.contiguous()


def _pointer(mask: Tensor | None) -> int | None:
    return None if mask is None else mask.data_ptr()


def _mask_strides(mask: Tensor | None) -> ctypes.Array[ctypes.c_int64] | None:
    return None if mask is None else compiler.numbers(mask.stride())


def _strides(*tensors: Tensor) -> ctypes.Array[ctypes.c_int64]:
    return compiler.numbers(tuple(step for tensor in tensors for step in tensor.stride()[:3]))
