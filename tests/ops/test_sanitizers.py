"""The kernels, compiled so that an access outside of an array or undefined arithmetic ends the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.test_build import libraries, run_kernel_tests, without_settings

_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g1 -fno-omit-frame-pointer"


def runtime(name: str) -> str | None:
    """Where the compiler has a library that must be loaded before all others."""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        return None
    done = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True)
    result = done.stdout.strip()
    return result if Path(result).is_absolute() and Path(result).exists() else None


# libstdc++ too: without it the first exception would find no handler behind the sanitizer's.
_RUNTIMES = [runtime(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")]


@pytest.mark.slow
@pytest.mark.skipif(None in _RUNTIMES, reason="the compiler has no sanitizers")
def test_kernels_stay_inside_their_memory_and_their_arithmetic(tmp_path: Path) -> None:
    environment = without_settings() | {"QKNORM_CACHE": str(tmp_path), "QKNORM_CXXFLAGS": _FLAGS}
    # Built before the runtimes are loaded: the compiler should not be watched.
    build = [sys.executable, "-c", "from qknorm.ops import _build; print(_build._built())"]
    assert subprocess.run(build, env=environment, capture_output=True, text=True).returncode == 0
    before = libraries(tmp_path)
    run_kernel_tests(
        environment
        | {
            "LD_PRELOAD": " ".join(path for path in _RUNTIMES if path),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
    )
    assert libraries(tmp_path) == before
