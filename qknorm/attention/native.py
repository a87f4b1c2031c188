"""Builds and calls the CPU kernel of Lp normalisation (`kernel.cpp`).

A normalisation written with torch's own operations reads and writes its tensor half a dozen times and takes as long
as the attention it prepares. This kernel does it in one pass. Each variant (p, head dimension, element type) is
compiled by the system's C++ compiler when it is first used, which takes about a quarter of a second, and is kept in
the cache folder. Where that is impossible, `kernel_for` warns once and answers None.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import math
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor

_SOURCE = Path(__file__).with_name("kernel.cpp")
_STORAGE = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_COMMON_ROW_LENGTHS = (16, 32, 64, 96, 128)
# Exponents that are computed by products and a root, each with its double.
TWICE = {twice / 2: twice for twice in range(1, 17)}
_INFINITE, _GENERAL = 0, -1  # what kernel.cpp calls the others
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
# With threads; for a compiler without them; for any compiler.
_FLAG_CHOICES = (("-march=native", "-fopenmp"), ("-march=native", "-fopenmp-simd"), ())
_BUILD_SECONDS = 120
# Below this many elements a second thread costs more than it saves.
_ELEMENTS_PER_THREAD = 8192

_ONE = torch.ones((), dtype=torch.float32, device="cpu")


class Kernel:
    """One compiled variant. It normalises the last dimension of x; heads, if any, are dimension −3."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        pointer, real, integer = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
        self._forward = loaded.lp_forward
        self._forward.argtypes = [*[pointer] * 5, real, real, integer]
        self._forward.restype = None
        self._backward = loaded.lp_backward
        self._backward.argtypes = [*[pointer] * 7, real, real, integer]
        self._backward.restype = None

    def forward(self, x: Tensor, scale: Tensor | None, p: float, floor: float) -> tuple[Tensor, Tensor]:
        """scale · x / ‖x‖_p, and the norms as (batch, heads, length)."""
        x4 = _four_dimensional(x)
        y = _empty_like(x4)
        norms = x4.new_empty(x4.shape[:3], dtype=torch.float32)
        g = _ONE if scale is None else scale.detach().float().contiguous()
        layout = _layout(x4.shape, g.dim(), x4.stride(), y.stride())
        self._forward(
            x4.data_ptr(), y.data_ptr(), norms.data_ptr(), g.data_ptr(), layout, p, floor, _threads(x4.numel())
        )  # fmt: skip
        return y if x.dim() == 4 else y.view(x.shape), norms

    def backward(
        self, x: Tensor, norms: Tensor, dy: Tensor, scale: Tensor | None, p: float, floor: float
    ) -> tuple[Tensor, Tensor]:
        """The gradient of x, and x̂ · dy of each row as (batch, heads, length)."""
        x4, dy4 = _four_dimensional(x), _four_dimensional(dy)
        dx, dots = _empty_like(x4), torch.empty_like(norms)
        g = _ONE if scale is None else scale.detach().float().contiguous()
        layout = _layout(x4.shape, g.dim(), x4.stride(), dy4.stride(), dx.stride())
        self._backward(
            x4.data_ptr(), dy4.data_ptr(), dx.data_ptr(), norms.data_ptr(), dots.data_ptr(), g.data_ptr(), layout,
            p, floor, _threads(x4.numel()),
        )  # fmt: skip
        return dx if x.dim() == 4 else dx.view(x.shape), dots


def kernel_for(x: Tensor, p: float) -> Kernel | None:
    """The kernel that normalises the last dimension of x, or None where torch's operations have to do it."""
    storage = _STORAGE.get(x.dtype)
    seen_by_torch_only = torch._C._len_torch_dispatch_stack() > 0  # a mode that watches or replaces operations
    if storage is None or x.device.type != "cpu" or x.layout != torch.strided or seen_by_torch_only:
        return None
    row = x.shape[-1]
    twice = _INFINITE if p == math.inf else TWICE.get(p, _GENERAL)
    return _variant(twice, row if row in _COMMON_ROW_LENGTHS else 0, storage)


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
    numbers = [*shape, scale_dims, *(step for tensor in strides for step in tensor[:3])]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _threads(elements: int) -> int:
    return min(torch.get_num_threads(), 1 + elements // _ELEMENTS_PER_THREAD)


@functools.cache
def _variant(twice_p: int, row: int, storage: int) -> Kernel | None:
    if os.environ.get("QKNORM_NATIVE") == "0":
        return None
    definitions = (f"-DTWICE_P={twice_p}", f"-DROW={row}", f"-DSTORAGE={storage}")
    try:
        library = _build(definitions)
        try:
            return Kernel(library)
        except OSError:  # a damaged file in the cache
            library.unlink()
            return Kernel(_build(definitions))
    except (OSError, subprocess.SubprocessError) as error:
        _warn_once(error)
        return None


@functools.cache
def _compiler() -> tuple[str, str]:
    """The compiler's path, and everything besides the flags on which its output depends."""
    names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        raise OSError("no C++ compiler (c++, g++ or clang++) was found")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_BUILD_SECONDS).stdout
    return path, version + platform.machine() + _cpu_features()


def _cpu_features() -> str:
    """What -march=native sees; a cache folder may be shared by machines that differ in it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


def _build(definitions: tuple[str, ...]) -> Path:
    """Compile one variant unless the cache has it. The file appears whole or not at all."""
    compiler, identity = _compiler()
    source = _SOURCE.read_bytes()
    for choice in _FLAG_CHOICES:
        flags = (*_FLAGS, *choice, *definitions)
        key = hashlib.sha256(repr((source, flags, identity)).encode()).hexdigest()[:20]
        target = _cache_folder() / f"lp-{key}.so"
        if target.exists():
            return target
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as scratch:
            built = Path(scratch) / target.name
            command = [compiler, *flags, str(_SOURCE), "-o", str(built)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)
            if result.returncode == 0:
                built.replace(target)
                return target
    first_line = (result.stderr.strip() or "no message").splitlines()[0]
    raise OSError(f"{compiler} could not compile it: {first_line}")


@functools.cache
def _cache_folder() -> Path:
    """$XDG_CACHE_HOME/qknorm/kernels, or a folder for this process alone where that cannot be used.

    What lies there is run, so it must be a folder that this user owns and nobody else can write to.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qknorm" / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=folder).close()
        status = folder.stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
            raise PermissionError(f"{folder} can be written by others")
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        folder = Path(tempfile.mkdtemp(prefix="qknorm-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_warned = False


def _warn_once(reason: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"qknorm: the fast CPU kernel is not available ({reason}); torch's own operations are used instead: the "
            "same numbers, slower. Install a C++ compiler, or set QKNORM_NATIVE=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
