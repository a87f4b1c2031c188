"""A package that is not installed: the error says which extra brings it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import qknorm
from qknorm.errors import InputError, needs
from qknorm.experiments.machines import Backend, Machines
from qknorm.training.loggers.table import check_installed


def start(backend: Backend) -> None:
    with Machines(backend)._outcomes([], jobs=1, threads=1):
        pass


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("transformers", qknorm.hf.register, "hf"),
        ("transformers", qknorm.hf.conventions_table, "hf"),
        ("matplotlib.figure", lambda: qknorm.watch(qknorm.QKNormAttention(8, 2)).plot(), "toolkit"),
        ("tensorboard", lambda: check_installed(["tensorboard"]), "tensorboard"),
        ("wandb", lambda: check_installed(["wandb"]), "wandb"),
        ("distributed", lambda: start("dask"), "dask"),
    ],
)
def test_the_sentence_names_the_extra(
    package: str, call: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(InputError, match=rf"needs the package {package}; .* pip install 'qknorm\[{extra}\]'") as error:
        call()
    assert isinstance(error.value, ImportError)


def test_what_is_installed_is_imported() -> None:
    with needs("hf", "this"):
        import json

    assert json.loads("1") == 1


def without(package: str, code: str) -> subprocess.CompletedProcess[str]:
    whole = f"import sys; sys.modules[{package!r}] = None; {code}"
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True)


def test_a_class_of_the_toolkit_names_it() -> None:
    done = without("tokenizers", "import qknorm; qknorm.Translator")
    assert "Translator needs the package tokenizers; install it with: pip install 'qknorm[toolkit]'\n" in done.stderr


def test_the_command_with_a_part_of_the_toolkit_names_it() -> None:
    done = without("pydantic", "from qknorm.cli import main; sys.argv = ['qknorm', 'train', 'recipe.yaml']; main()")
    sentence = "qknorm: the command needs the toolkit; install it with: pip install 'qknorm[toolkit]'\n"
    assert (done.returncode, done.stderr) == (2, sentence)
