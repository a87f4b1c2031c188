"""The CPU kernel of Lp normalisation (`lp.cpp`).

A normalisation written with torch's own operations reads and writes its tensor half a dozen times and takes as long
as the attention it prepares. This kernel does it in one pass. Each variant (p, head dimension, element type) is
compiled when it is first used, which takes about a quarter of a second.
"""

from __future__ import annotations

import ctypes
import functools
import math

import torch
from torch import Tensor

from qknorm.native import checks, compiler

_STORAGE = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_COMMON_ROW_LENGTHS = (16, 32, 64, 96, 128)
# Exponents that are computed by products and a root, each with its double.
TWICE = {twice / 2: twice for twice in range(1, 17)}
_INFINITE, _GENERAL = 0, -1  # what lp.cpp calls the others

_ONE = torch.ones((), dtype=torch.float32, device="cpu")


class Kernel:
    """One compiled variant. It normalises the last dimension of x; heads, if any, are dimension −3."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        pointer, real, integer = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
        self._forward = loaded.lp_forward
        self._forward.argtypes = [*[pointer] * 5, real, real, integer]
        self._forward.restype = integer
        self._backward = loaded.lp_backward
        self._backward.argtypes = [*[pointer] * 7, real, real, integer]
        self._backward.restype = None

    def forward(self, x: Tensor, scale: Tensor | None, p: float, floor: float) -> tuple[Tensor, Tensor, bool]:
        """scale · x / ‖x‖_p, the norms as (batch, heads, length), and whether all that was read was finite."""
        x4 = _four_dimensional(x)
        y = _empty_like(x4)
        norms = x4.new_empty(x4.shape[:3], dtype=torch.float32)
        g = _ONE if scale is None else _as_read(scale)
        layout = _layout(x4.shape, g.dim(), x4.stride(), y.stride())
        is_broken = self._forward(
            x4.data_ptr(), y.data_ptr(), norms.data_ptr(), g.data_ptr(), layout, p, floor, compiler.threads(x4.numel())
        )  # fmt: skip
        return y if x.dim() == 4 else y.view(x.shape), norms, not is_broken

    def backward(
        self, x: Tensor, norms: Tensor, dy: Tensor, scale: Tensor | None, p: float, floor: float
    ) -> tuple[Tensor, Tensor]:
        """The gradient of x, and x̂ · dy of each row as (batch, heads, length)."""
        x4, dy4 = _four_dimensional(x), _four_dimensional(compiler.in_memory(dy))
        checks.memory(dy4)
        dx, dots = _empty_like(x4), torch.empty_like(norms)
        g = _ONE if scale is None else _as_read(scale)
        layout = _layout(x4.shape, g.dim(), x4.stride(), dy4.stride(), dx.stride())
        self._backward(
            x4.data_ptr(), dy4.data_ptr(), dx.data_ptr(), norms.data_ptr(), dots.data_ptr(), g.data_ptr(), layout,
            p, floor, compiler.threads(x4.numel()),
        )  # fmt: skip
        return dx if x.dim() == 4 else dx.view(x.shape), dots


def kernel_for(x: Tensor, p: float) -> Kernel | None:
    """The kernel that normalises the last dimension of x, or None where torch's operations have to do it."""
    storage = _STORAGE.get(x.dtype)
    if storage is None or not compiler.can_serve(x):
        return None
    row = x.shape[-1]
    twice = _INFINITE if p == math.inf else TWICE.get(p, _GENERAL)
    return _variant(twice, row if row in _COMMON_ROW_LENGTHS else 0, storage)


def _as_read(scale: Tensor) -> Tensor:
    g = compiler.in_memory(scale.detach().float()).contiguous()
    checks.memory(g)
    return g


def _four_dimensional(x: Tensor) -> Tensor:
    """x as (batch, heads, length, row) with contiguous rows; a view wherever one exists."""
    if x.dim() != 4:
        x = x.flatten(0, -4) if x.dim() > 4 else x[(None,) * (4 - x.dim())]
    return x.resolve_neg() if x.stride(3) == 1 else x.contiguous()


def _empty_like(x: Tensor) -> Tensor:
    """A tensor in the layout of x, with contiguous rows even where x is a view that overlaps itself."""
    y = torch.empty_like(x)
    return y if y.stride(3) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


@functools.lru_cache(maxsize=1024)
def _layout(shape: tuple[int, ...], scale_dims: int, *strides: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """The kernel's `layout`: four sizes, the stride of g over heads, then three strides for each tensor."""
    return compiler.numbers((*shape, scale_dims, *(step for tensor in strides for step in tensor[:3])))


@functools.cache
def _variant(twice_p: int, row: int, storage: int) -> Kernel | None:
    loaded = compiler.load("lp.cpp", (f"-DTWICE_P={twice_p}", f"-DROW={row}", f"-DSTORAGE={storage}"))
    return None if loaded is None else Kernel(loaded)
