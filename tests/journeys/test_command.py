"""The command `qknorm` as a user meets it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import qknorm
from tests.journeys.conftest import Command

ROOT = Path(__file__).parents[2]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "qknorm", *arguments], cwd=cwd, capture_output=True, text=True)


def test_help_names_the_commands(command: Command) -> None:
    assert command("--version").out == f"qknorm {qknorm.__version__}\n"
    done = command("--help")
    assert done.code == 0
    files = {path.stem for path in (ROOT / "qknorm" / "commands").glob("[!_]*.py")}
    assert files <= set(done.out.split())
    assert "..." not in done.out.partition("Commands:")[2], "no summary is cut"


def test_a_wrong_call_gets_one_sentence_and_exit_code_2(command: Command) -> None:
    for arguments in (["quikstart"], ["quickstart", "--oops"], ["quickstart", "extra"]):
        done = command(*arguments)
        assert (done.code, done.out) == (2, "")
        assert re.fullmatch(r"qknorm: [^\n]+\n", done.errors)


def test_debug_shows_the_traceback(tmp_path: Path, command: Command) -> None:
    (tmp_path / "taken").touch()
    quiet = command("quickstart", "--out", "taken")
    assert (quiet.code, quiet.errors) == (2, "qknorm: taken is a file; --out needs a folder\n")
    loud = run("data", "check", "nowhere.en", "nowhere.gl", "--debug", cwd=tmp_path)
    assert "Traceback" in loud.stderr


def test_the_library_needs_torch_alone_and_the_help_not_even_that() -> None:
    """`from qknorm import *` brings in none of the packages of any extra; numpy and filelock come with torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [package for extra in ("toolkit", "hf") for package in project["optional-dependencies"][extra]]
    packages = {package.partition(">=")[0] for package in needed}
    modules = {{"pyyaml": "yaml"}.get(name, name.replace("-", "_")) for name in packages - {"numpy", "filelock"}}
    code = f"import sys; from qknorm import *; QKNormAttention; print({modules!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    code = "import sys; import qknorm.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_reader_who_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qknorm", "data", "list"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (1, 141)


def test_without_the_toolkit_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('not installed')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import qknorm.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "qknorm: the command needs the toolkit; install it with: pip install 'qknorm[toolkit]'\n"
