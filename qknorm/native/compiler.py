"""Compiles the C++ files of this folder on the user's machine, keeps them in a cache folder, and loads them.

Each is compiled by the system's compiler when it is first used, for the very processor it will run on. Where that is
impossible, `load` warns once and answers None, and torch's own operations do the work.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import forward_ad

from qknorm.native import checks

_PLAIN = (Tensor, torch.nn.Parameter)
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
# With threads; for a compiler without them; for any compiler.
_THREADS = "-fopenmp"
_FLAG_CHOICES = (("-march=native", _THREADS), ("-march=native", "-fopenmp-simd"), ())
_BUILD_SECONDS = 120
# Below this many elements a second thread costs more than it saves.
_ELEMENTS_PER_THREAD = 8192


@functools.cache
def load(source: str, definitions: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """The library made from a C++ file of this folder, or None where it cannot be made or is not wanted."""
    if os.environ.get("QKNORM_NATIVE") == "0":
        return None
    path = Path(__file__).with_name(source)
    try:
        library = _build(path, definitions)
        try:
            return ctypes.CDLL(str(library))
        except OSError:  # whole, and yet not for this machine
            library.unlink(missing_ok=True)
            return ctypes.CDLL(str(_build(path, definitions)))
    except (OSError, subprocess.SubprocessError) as error:
        _warn_once(
            f"the fast CPU kernels are not available ({error}); torch's own operations are used instead: the same "
            "numbers, slower. Install a C++ compiler, or set QKNORM_NATIVE=0 to silence this."
        )
        return None


def can_serve(*tensors: Tensor) -> bool:
    """Whether a kernel may read these: plain CPU tensors, while nothing watches or replaces torch's operations.

    Tensors that stand for others without having their values in memory are left to torch.
    """
    if _is_transforming() or torch._C._len_torch_dispatch_stack():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.layout is not torch.strided:
            return False
        if tensor._is_zerotensor() or tensor.is_neg():
            return False
    checks.memory(*tensors)
    return True


def is_transformed(x: Tensor) -> bool:
    """Whether torch is transforming the code (compile, export, func, tracing, forward-mode derivatives, subclasses)."""
    return _is_transforming() or type(x) not in _PLAIN


def _is_transforming() -> bool:
    return (
        torch.compiler.is_compiling()  # first: torch.compile cannot trace the others
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
    )


def in_memory(x: Tensor) -> Tensor:
    """x, or a copy where its values are not in memory as they are: torch's gradients may be zeros without memory."""
    return x.clone() if x._is_zerotensor() or x.is_neg() else x


def required(kernels: ctypes.CDLL | None) -> ctypes.CDLL:
    """The kernels, where the caller has to have them."""
    if kernels is None:
        raise RuntimeError(
            "this needs the CPU kernels, which are switched off (QKNORM_NATIVE=0) or could not be compiled; "
            "the functions of qknorm do the same with torch's operations"
        )
    return kernels


def threads(elements: int) -> int:
    """How many threads work on so many elements is worth."""
    return min(torch.get_num_threads(), 1 + elements // _ELEMENTS_PER_THREAD)


@functools.lru_cache(maxsize=4096)
def numbers(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    """Whole numbers as C++ reads them: shapes and strides come back at every step, so they are kept."""
    return (ctypes.c_int64 * len(values))(*values)


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


def _build(source: Path, definitions: tuple[str, ...]) -> Path:
    """Compile one variant unless the cache has it. The file appears whole or not at all, named after what is in it."""
    compiler, identity = _compiler()
    text = source.read_bytes() + source.with_name("kernels.h").read_bytes()
    message = "no set of flags is accepted"
    for choice in _FLAG_CHOICES:
        if _refusal(choice).exists():
            continue
        flags = (*_FLAGS, *choice, *definitions)
        name = f"{source.stem}-{_digest(repr((text, flags, identity)).encode())}"
        library, message = _found(name) or _compiled([compiler, *flags, str(source)], name)
        if library is not None:
            if _THREADS not in choice:
                _warn_once(
                    f"{compiler} does not know {_THREADS}, so the fast CPU kernels run on one thread. To use all, "
                    "install a compiler with OpenMP, such as g++, and name it in the environment variable CXX."
                )
            return library
        _remember_refusal(choice)
    raise OSError(f"{compiler} could not compile it: {message}")


def _found(name: str) -> tuple[Path, str] | None:
    """What the cache has under this name, if it is whole: the second half of a file's name is its digest.

    To load a file that was cut off ends the process, so it is recognised before.
    """
    for library in _cache_folder().glob(f"{name}-*.so"):
        if library.stem == f"{name}-{_digest(library.read_bytes())}":
            return library, ""
        library.unlink(missing_ok=True)
    return None


def _compiled(command: list[str], name: str) -> tuple[Path | None, str]:
    """The new file in the cache, or None and what the compiler said first."""
    with tempfile.TemporaryDirectory(dir=_cache_folder(), prefix="build-") as scratch:
        built = Path(scratch) / "built.so"
        result = _run([*command, "-o", str(built)])
        if result.returncode:
            return None, (result.stderr.strip() or "no message").splitlines()[0]
        return built.replace(_cache_folder() / f"{name}-{_digest(built.read_bytes())}.so"), ""


def _remember_refusal(choice: tuple[str, ...]) -> None:
    """Leave a note in the cache if the compiler does not take these flags for an empty file, and takes none at all.

    Anything else that went wrong, such as a full disk, may be better next time.
    """
    with tempfile.TemporaryDirectory(dir=_cache_folder(), prefix="build-") as scratch:
        empty = Path(scratch) / "empty.cpp"
        empty.touch()
        with_flags, without = (
            _run([_compiler()[0], *_FLAGS, *flags, str(empty), "-o", f"{empty}.so"]) for flags in (choice, ())
        )
        if with_flags.returncode and not without.returncode:
            _refusal(choice).write_text(with_flags.stderr)


def _refusal(choice: tuple[str, ...]) -> Path:
    """Where it is noted that the compiler does not take these flags."""
    return _cache_folder() / f"refused-{_digest(repr((_FLAGS, choice, _compiler())).encode())}.txt"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


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


def _warn_once(sentence: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"qknorm: {sentence}", RuntimeWarning, stacklevel=2)
