from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qknorm.data.textfiles import read_lines
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training.language import train
from qknorm.training.loggers.wandb import WandB

RECIPE = {
    "data": {"file": "text"},
    "model": {"layers": 1, "heads": 2, "dim": 8, "context": 8, "dropout": 0.0},
    "training": {"batch": 2, "iterations": 4, "warmup": 1, "validate_every": 2, "wandb": True},
}


class PretendedWandB:
    """As much of the package as is used, with the calls it got."""

    __spec__ = SimpleNamespace()

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.logged: dict[int, dict[str, float]] = {}
        self.is_finished = False

    def init(self, **settings: Any) -> PretendedWandB:
        self.settings = settings
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.logged[step] = numbers

    def finish(self) -> None:
        self.is_finished = True


@pytest.mark.parametrize(("chosen", "mode"), [(None, "offline"), ("online", "online")])
def test_a_language_model_is_followed_offline_unless_the_user_says_otherwise(
    chosen: str | None, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = PretendedWandB()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("WANDB_MODE", chosen)
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a line of some text\n" * 30)
    train(LanguageRecipe.model_validate(RECIPE), tmp_path / "mine", Screen(quiet=True), resume=False)
    assert (wandb.settings["mode"], wandb.settings["dir"]) == (mode, tmp_path / "mine")
    assert wandb.settings["config"]["training"]["iterations"] == 4
    lines = [json.loads(line) for line in read_lines(tmp_path / "mine" / "metrics.jsonl")]
    assert {step: numbers["val_loss"] for step, numbers in wandb.logged.items()} == {
        line["step"]: line["val_loss"] for line in lines
    }
    assert "g/blocks.0.attention" in wandb.logged[4]
    assert wandb.is_finished


def test_an_id_belongs_to_a_run_and_not_to_the_name_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = PretendedWandB()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    runs = [Run(tmp_path / size / "qknorm_seed-1") for size in ("small", "medium")]

    def begin(run: Run) -> str:
        WandB(run, 0)
        assert wandb.settings["name"] == "qknorm_seed-1"
        assert wandb.settings["resume"] == "allow"
        return str(wandb.settings["id"])

    for run in runs:
        run.folder.mkdir(parents=True)
        run.save_recipe(LanguageRecipe.model_validate(RECIPE))
    first, other = map(begin, runs)
    assert first != other
    assert [begin(run) for run in runs] == [first, other], "a run that is resumed goes on with its own"
