from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments import cells
from qknorm.experiments.experiment import PLAN
from qknorm.experiments.page import results_as_csv
from qknorm.experiments.spanned import plan_sweep
from qknorm.runs.contents import Result
from qknorm.runs.run import Run
from tests.sweeps import results_in, run


def test_only_what_is_missing_is_computed(folder: Path) -> None:
    planned = plan_sweep(folder / "tiny.yaml")
    assert run(planned, folder / "out") == {}
    assert {result.status for result in results_in(folder / "out")} == {"done"}
    kept, lost = folder / "out" / "p-2_fold-00", folder / "out" / "p-3_fold-01"
    before, result = (kept / "result.json").stat(), json.loads((lost / "result.json").read_text())
    (lost / "result.json").unlink()
    (lost / "recipe.yaml").unlink()
    (lost / "metrics.jsonl").unlink()
    assert {result.status for result in results_in(folder / "out")} == {"done", "missing"}
    assert run(planned, folder / "out") == {}
    assert (kept / "result.json").stat() == before
    again = json.loads((lost / "result.json").read_text())
    assert again["best_val_loss"] == result["best_val_loss"]
    assert not list((folder / "out").glob("*/checkpoints"))


def test_a_run_that_fails_does_not_stop_the_others(folder: Path) -> None:
    failures = run(plan_sweep(folder / "tiny.yaml", None, ["peak=[0.001, 1.0e+38]", "p=2"]), folder / "out")
    assert set(failures) == {f"{plain}peak-1e+38_fold-0{fold}" for plain in ("", "qk_norm-none_") for fold in (0, 1)}
    assert "the loss is" in failures["peak-1e+38_fold-00"]
    results = results_in(folder / "out")
    assert sorted(result.status for result in results) == ["done"] * 4 + ["failed"] * 4
    lines = results_as_csv(results).splitlines()
    assert lines[0] == "p,start,fold,peak,qk_norm,best_val_loss,final_val_loss,best_step,seconds,status"
    assert len(lines) == 9


def test_a_result_that_cannot_be_written_does_not_stop_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Run.save_result

    def full(self: Run, result: Result) -> None:
        if self.folder.name == "fold-00":
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, result)

    planned = plan_sweep(folder / "tiny.yaml", None, ["p=2"])
    cells = [cell.name for cell in planned.cells]
    assert cells[0] == "fold-00"
    monkeypatch.setattr(Run, "save_result", full)
    failures = run(planned, folder / "out")
    assert failures == {"fold-00": "OSError: [Errno 28] No space left on device"}
    results = results_in(folder / "out")
    assert {result.folder.name for result in results if result.status == "done"} == set(cells[1:])
    failed = Run(folder / "out" / "fold-00")
    assert "No space left" in failed.log_file.read_text()
    assert failed.failure() == failures["fold-00"]
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run(planned, folder / "out") == {}, "its weights were kept"
    assert failed.failure() is None


def test_a_run_that_failed_has_not_failed_while_it_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_sweep(folder / "tiny.yaml", None, ["p=[2]", "folds=null"])

    def fail(_: object, trained: Path, *__: object, **___: object) -> None:
        assert Run(trained).failure() is None
        raise ValueError("in two\nlines")

    monkeypatch.setattr(cells, "train", fail)
    for _ in range(2):
        assert run(planned, folder / "out") == dict.fromkeys(["p-2", "qk_norm-none"], "ValueError: in two lines")
        assert Run(folder / "out" / "p-2").failure() == "ValueError: in two lines"


def test_another_recipe_does_not_mix_with_finished_runs(folder: Path) -> None:
    run(plan_sweep(folder / "tiny.yaml", None, ["p=2"]), folder / "out")
    before = (folder / "out" / PLAN).read_text()
    message = "out/fold-00 was made by another recipe; choose another name=NAME, or delete .*out/fold-00$"
    with pytest.raises(InputError, match=message):
        run(plan_sweep(folder / "tiny.yaml", None, ["p=2", "iterations=5"]), folder / "out")
    assert (folder / "out" / PLAN).read_text() == before
    (folder / "text").unlink()
    with pytest.raises(InputError, match="text does not exist"):
        run(plan_sweep(folder / "tiny.yaml", None, ["p=2"]), folder / "other")
    assert not (folder / "other").exists(), "without its text a sweep leaves no plan"
