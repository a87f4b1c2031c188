"""The command without a process of its own, and a corpus with a recipe, as a user would have them."""

from __future__ import annotations

import io
import shutil
import sys
import warnings
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from qknorm.cli import main
from qknorm.training import speed
from tests.caches import new_cache
from tests.conftest import made_once, train
from tests.phrases import write_phrases


class Done(NamedTuple):
    """What a call of the command left behind."""

    code: int
    out: str
    errors: str


class Command(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done: ...


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls `qknorm` with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(speed, "_SECONDS_MEASURED", 0.05)  # how fast a machine is does not matter here
    monkeypatch.setattr(warnings, "showwarning", _show)  # pytest would keep them to itself

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["qknorm", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            main()
        out, errors = capfdbinary.readouterr()
        assert isinstance(exit_.value.code, int)
        return Done(exit_.value.code, out.decode(), errors.decode())

    return call


def _show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    """On the screen, if users would see it: not what is meant for developers."""
    if issubclass(category, UserWarning):
        print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)


RECIPE = """
name: small
data:
  source: train.en
  target: train.gl
  dev: [dev.en, dev.gl]
  test: [test.en, test.gl]
  languages: [en, gl]
  merges: 200
model: {dim: 16, feed_forward: 32, encoder_layers: 1, decoder_layers: 1, heads: 2}
training:
  budget: 256
  schedule: cosine
  peak: 0.003
  warmup: 10
  validate_every: 8
  max_updates: 24
decoding: {validation_beam_size: 1, extra_length: 5}
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a corpus of 600 pairs and a recipe that trains on it in a second or two."""
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    _furnish(tmp_path)
    return tmp_path


def _furnish(folder: Path) -> None:
    write_phrases(folder, train=600, held_out=24)
    (folder / "recipe.yaml").write_text(RECIPE)


def _train_small(folder: Path) -> None:
    _furnish(folder)
    train(folder)


@pytest.fixture
def small_run(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that `qknorm train recipe.yaml` leaves in the workplace: it is trained once for all tests, and copied."""
    made = made_once(tmp_path_factory, "small", _train_small)
    shutil.copytree(made / "runs" / "small", workplace / "runs" / "small")
    return workplace / "runs" / "small"
