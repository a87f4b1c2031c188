"""Compiles the C++ files of this folder into one library on the user's machine, keeps it in a cache, and loads it.

It is compiled by the system's compiler when an operator is first used on a CPU, for the very processor it will run on.
Where that is impossible, `load` warns once, and the operators' twins do the work in torch's own operations.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from filelock import FileLock, Timeout  # torch brings it

from qknorm.cache import cache_folder

_LOG = logging.getLogger("qknorm")
_HERE = Path(__file__).parent
_TORCH = Path(torch.__file__).parent
# The stable ABI of torch 2.10: a library that was made with it keeps working with every later version.
_ABI = "-DTORCH_TARGET_VERSION=0x020a000000000000"
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-fvisibility=hidden")
# The instructions of this very processor and loops as vector code; for a compiler that does not know them, neither.
_PROCESSOR, _SIMD = "-march=native", "-fopenmp-simd"
_FLAG_CHOICES = ((_PROCESSOR, _SIMD), (_PROCESSOR,), ())
_BUILD_SECONDS = 300


class BuildError(Exception):
    """The library could not be made; the message is what the compiler said first."""


@functools.cache
def load() -> Path | None:
    """Load the library of kernels, which registers itself with torch; None where it cannot be made or is not wanted."""
    if os.environ.get("QKNORM_NATIVE") == "0":
        return None
    try:
        with _alone():
            library = _built()
        try:
            torch.ops.load_library(library)
        except OSError:  # whole, and yet not for this machine
            library.unlink(missing_ok=True)
            library = _built()
            torch.ops.load_library(library)
        return library
    except (OSError, BuildError, subprocess.SubprocessError) as error:
        warnings.warn(
            f"qknorm: the fast CPU kernels are not available ({error}); torch's own operations are used instead: the "
            "same numbers, slower. Install a C++ compiler, or set QKNORM_NATIVE=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let other processes wait until this one has built the library; where that is impossible, each builds its own."""
    lock = FileLock(_cache_folder() / "build.lock", timeout=_BUILD_SECONDS)
    try:
        lock.acquire()
    except (Timeout, OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _built() -> Path:
    """The library in the cache, made now if it is not there."""
    compiler, identity = _compiler()
    content = b"".join(path.read_bytes() for path in (*_sources(), *_headers()))
    message = "no set of flags is accepted"
    for choice in _FLAG_CHOICES:
        if _refusal(choice).exists():
            continue
        flags = (*_FLAGS, *choice, *_extra_flags(), _ABI)
        name = f"operators-{_digest(repr((content, flags, identity)).encode())}"
        library = _existing(name)
        if library is not None:
            return library
        try:
            return _compiled(compiler, flags, name)
        except BuildError as error:
            message = str(error)
            _remember_refusal(choice)
    raise BuildError(f"{compiler} could not compile them: {message}")


def _sources() -> list[Path]:
    return sorted(_HERE.glob("*.cpp"))


def _headers() -> list[Path]:
    return sorted(_HERE.glob("*.h"))


def _extra_flags() -> tuple[str, ...]:
    """What $QKNORM_CXXFLAGS adds: other instructions (-mno-avx512f), sanitizers (-fsanitize=address)."""
    return tuple(os.environ.get("QKNORM_CXXFLAGS", "").split())


@functools.cache
def _compiler() -> tuple[str, str]:
    """The compiler's path, and everything besides the flags on which its output depends."""
    names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        raise BuildError("no C++ compiler (c++, g++ or clang++) was found")
    version = _run([path, "--version"]).stdout
    return path, version + platform.machine() + _cpu_features()


def _cpu_features() -> str:
    """What -march=native sees; a cache folder may be shared by machines that differ in it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


def _existing(name: str) -> Path | None:
    """What the cache has under this name, if it is whole: the second half of a file's name is its digest.

    To load a file that was cut off ends the process, so it is recognised before.
    """
    for library in _cache_folder().glob(f"{name}-*.so"):
        if library.stem == f"{name}-{_digest(library.read_bytes())}":
            return library
        library.unlink(missing_ok=True)
    return None


def _compiled(compiler: str, flags: tuple[str, ...], name: str) -> Path:
    """The new library in the cache: it appears whole or not at all, named after what is in it."""
    _LOG.info("compiling the CPU kernels for this machine, once: about twenty seconds")
    with tempfile.TemporaryDirectory(dir=_cache_folder(), prefix="build-") as scratch:
        built = Path(scratch) / "built.so"
        include = ("-isystem", str(_TORCH / "include"))

        def compile_one(source: Path) -> str:
            made = Path(scratch) / f"{source.stem}.o"
            _run_or_raise([compiler, *flags, *include, "-c", str(source), "-o", str(made)])
            return str(made)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = list(pool.map(compile_one, sorted(_sources(), key=lambda path: -path.stat().st_size)))
        libraries = (f"-L{_TORCH / 'lib'}", "-ltorch_cpu", "-lc10")
        _run_or_raise([compiler, *flags, "-shared", *parts, *libraries, "-o", str(built)])
        return built.replace(_cache_folder() / f"{name}-{_digest(built.read_bytes())}.so")


def _remember_refusal(choice: tuple[str, ...]) -> None:
    """Leave a note in the cache if the compiler does not take these flags for an empty file, and takes none at all.

    Anything else that went wrong, such as a full disk, may be better next time.
    """
    with tempfile.TemporaryDirectory(dir=_cache_folder(), prefix="build-") as scratch:
        empty = Path(scratch) / "empty.cpp"
        empty.touch()
        with_flags, without = (
            _run([_compiler()[0], *_FLAGS, *flags, "-c", str(empty), "-o", f"{empty}.o"]) for flags in (choice, ())
        )
        if with_flags.returncode and not without.returncode:
            _refusal(choice).write_text(with_flags.stderr)


def _refusal(choice: tuple[str, ...]) -> Path:
    """Where it is noted that the compiler does not take these flags."""
    return _cache_folder() / f"refused-{_digest(repr((_FLAGS, choice, _compiler())).encode())}.txt"


def _run_or_raise(command: list[str]) -> None:
    result = _run(command)
    if result.returncode:
        lines = (result.stderr.strip() or "no message").splitlines()
        raise BuildError(next((line for line in lines if "error" in line), lines[0]))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


@functools.cache
def _cache_folder() -> Path:
    """The folder `kernels` of the cache, or one for this process alone where that cannot be used.

    What lies there is run, so it must be a folder that this user owns and nobody else can write to.
    """
    try:
        folder = cache_folder() / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=folder).close()
        status = folder.stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
            raise PermissionError(f"{folder} can be written by others")
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        folder = Path(tempfile.mkdtemp(prefix="qknorm-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
