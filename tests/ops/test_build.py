"""How the library of kernels is made, kept and found again: by processes of their own, each with a cache of its own.

Compiling takes long, so the compiler is mostly a script that hands out the library which these tests already have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qknorm.ops import _build, _dispatch

_dispatch.load_kernels()
_LIBRARY = _build.load()
_HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_LIBRARY is None, reason="no C++ compiler: the kernels cannot be built"),
    pytest.mark.skipif(os.name != "posix", reason="the compiler that stands in is a shell script"),
]

_COMPILER = """#!/bin/sh
echo "$@" >> "{log}"
{first}
for argument; do
  case "$argument" in
    --version) echo "a compiler that stands in"; exit 0 ;;
    -shared) shared=yes ;;
  esac
  out="$argument"
done
if [ "$shared" ]; then sleep 0.2; cp "{library}" "$out"; else : > "$out"; fi
"""

# The numbers must be right in any case; what is printed is the library that gave them.
_PROGRAM = """
import torch, qknorm
from qknorm.ops import _build
torch.testing.assert_close(qknorm.lp_normalize(torch.ones(4, 4)), torch.full((4, 4), 0.5))
torch.testing.assert_close(qknorm.lp_normalize(torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))
print(_build.load())
"""

Environment = dict[str, str]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiler(tmp_path_factory.mktemp("compiler") / "cxx")


@pytest.fixture
def environment(cache: Path, stand_in: Path) -> Environment:
    """With a compiler that stands in."""
    return without_settings() | {"QKNORM_CACHE": str(cache), "CXX": str(stand_in)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, stand_in: Path) -> Path:
    """A cache in which a process has left its library."""
    folder = tmp_path_factory.mktemp("filled")
    run(without_settings() | {"QKNORM_CACHE": str(folder), "CXX": str(stand_in)})
    return folder


def without_settings() -> Environment:
    return {name: value for name, value in os.environ.items() if name != "CXX" and not name.startswith("QKNORM_")}


def compiler(path: Path, first: str = "") -> Path:
    """A compiler that does `first`, notes what it was asked in a file beside itself, and gives out a ready library."""
    path.write_text(_COMPILER.format(log=log_of(path), first=first, library=_LIBRARY))
    path.chmod(0o700)
    return path


def log_of(path: Path) -> Path:
    return path.with_suffix(".log")


def start(environment: Environment) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "always::RuntimeWarning", "-c", _PROGRAM]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(environment: Environment) -> tuple[str, str]:
    """The library of a process, and what it said beside; its numbers were right."""
    process = start(environment)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out.strip(), error


def libraries(cache: Path) -> list[Path]:
    return sorted(cache.glob("kernels/*.so"))


def test_two_processes_that_build_at_once_leave_one_whole_library(cache: Path, environment: Environment) -> None:
    processes = [start(environment) for _ in range(2)]
    ends = [(*process.communicate(timeout=300), process.returncode) for process in processes]
    (library,) = libraries(cache)
    assert ends == [(f"{library}\n", "", 0)] * 2
    assert _LIBRARY is not None
    assert library.read_bytes() == _LIBRARY.read_bytes()
    assert list(cache.glob("kernels/build-*")) == []


def test_a_library_that_is_there_is_not_built_again(
    cache: Path, filled: Path, stand_in: Path, environment: Environment
) -> None:
    shutil.copytree(filled, cache)
    log_of(stand_in).unlink()
    assert run(environment) == (str(libraries(cache)[0]), "")
    assert log_of(stand_in).read_text() == "--version\n"


def cut_off(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:5000])


def foreign(library: Path) -> None:
    library.write_bytes(b"something else")


def foreign_but_whole(library: Path) -> None:
    """Its name says what is in it, and yet it is not a library."""
    content = b"something else"
    name = library.stem.rpartition("-")[0]
    library.unlink()
    library.with_name(f"{name}-{_build._digest(content)}.so").write_bytes(content)


@pytest.mark.parametrize("damage", [cut_off, foreign, foreign_but_whole])
def test_a_damaged_library_is_replaced(
    damage: Callable[[Path], None], cache: Path, filled: Path, environment: Environment
) -> None:
    shutil.copytree(filled, cache)
    (library,) = libraries(cache)
    content = library.read_bytes()
    damage(library)
    assert run(environment) == (str(library), "")
    assert libraries(cache) == [library]
    assert library.read_bytes() == content


def read_only(folder: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write anywhere")
    folder.mkdir()
    folder.chmod(0o500)


def writable_by_all(folder: Path) -> None:
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels").chmod(0o777)


def occupied_by_a_file(folder: Path) -> None:
    folder.touch()


@pytest.mark.parametrize("prepare", [read_only, writable_by_all, occupied_by_a_file])
def test_a_cache_that_cannot_be_used_is_replaced_for_one_process(
    prepare: Callable[[Path], None], cache: Path, environment: Environment
) -> None:
    prepare(cache)
    library, printed = run(environment)
    assert printed == ""
    assert library.endswith(".so")
    assert not library.startswith(str(cache))
    assert not Path(library).parent.exists()


def test_without_kernels_the_twins_work_and_nothing_is_built(cache: Path, environment: Environment) -> None:
    assert run(environment | {"QKNORM_NATIVE": "0"}) == ("None", "")
    assert not cache.exists()


def test_without_a_compiler_the_twins_work_after_one_warning(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    library, printed = run(without_settings() | {"QKNORM_CACHE": str(cache), "PATH": str(tmp_path / "empty")})
    assert library == "None"
    assert printed.count("RuntimeWarning") == 1
    assert "no C++ compiler (c++, g++ or clang++) was found" in printed


def test_a_compiler_that_fails_is_named_in_the_warning(tmp_path: Path, environment: Environment) -> None:
    failing = compiler(tmp_path / "failing", '[ "$1" = --version ] || { echo "fatal error: no space" >&2; exit 1; }')
    library, printed = run(environment | {"CXX": str(failing)})
    assert library == "None"
    assert printed.count("RuntimeWarning") == 1
    assert f"{failing} could not compile them: fatal error: no space" in printed


def test_flags_that_a_compiler_refuses_are_not_tried_again(
    cache: Path, tmp_path: Path, environment: Environment
) -> None:
    refusal = 'case "$*" in *-fopenmp-simd*) echo "error: unknown -fopenmp-simd" >&2; exit 1 ;; esac'
    narrow = compiler(tmp_path / "narrow", refusal)
    expected = run(environment | {"CXX": str(narrow)})
    assert "-fopenmp-simd" in log_of(narrow).read_text()
    log_of(narrow).unlink()
    for library in libraries(cache):
        library.unlink()
    assert run(environment | {"CXX": str(narrow)}) == expected
    assert "-shared" in log_of(narrow).read_text()
    assert "-fopenmp-simd" not in log_of(narrow).read_text()


def test_a_failure_for_another_reason_is_tried_again(cache: Path, tmp_path: Path, environment: Environment) -> None:
    failing = compiler(tmp_path / "failing", f'[ "$1" = --version ] || [ ! -e "{tmp_path}/full" ] || exit 1')
    (tmp_path / "full").touch()
    assert run(environment | {"CXX": str(failing)})[0] == "None"
    (tmp_path / "full").unlink()
    library, printed = run(environment | {"CXX": str(failing)})
    assert (libraries(cache), printed) == ([Path(library)], "")


def _has_avx512() -> bool:
    try:
        return " avx512f " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not _has_avx512(), reason="this processor has narrower vectors anyway")
def test_kernels_with_narrower_vectors_compute_the_same(cache: Path) -> None:
    environment = without_settings() | {"QKNORM_CACHE": str(cache), "QKNORM_CXXFLAGS": "-mno-avx512f"}
    run_kernel_tests(environment)
    assert len(libraries(cache)) == 1


def run_kernel_tests(environment: Environment) -> None:
    """The comparison of every kernel with its twin, in a process of its own."""
    tests = f"{_HERE / 'test_table.py'}::TestKernel"
    chosen = ["-p", "no:cacheprovider", "-k", "values or gradients or dropped", tests]
    command = [sys.executable, "-m", "pytest", "-q", *chosen]
    done = subprocess.run(command, cwd=_HERE.parents[1], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
