from __future__ import annotations

import json
from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError
from qknorm.evaluation.wording import TOO_SHORT
from qknorm.experiments.cells import Cell
from qknorm.experiments.compare import Compared, as_systems, compared_contest
from qknorm.experiments.machines import Machines
from qknorm.experiments.plan import Plan
from qknorm.experiments.spanned import plan_sweep
from qknorm.experiments.views.table import summarise
from qknorm.runs.run import Run
from qknorm.screen import Screen
from tests.experiments.plans import contest_of, planned, run_of
from tests.sweeps import run


def train(folder: Path, *cells: Cell) -> None:
    assert Machines(jobs=1).run_missing("test", cells, folder, Screen(quiet=True)) == {}


def compared(plan: Plan, folder: Path) -> Compared:
    return compared_contest(plan.experiment, contest_of(plan, folder))


def test_a_table_with_what_is_done_and_what_is_not(talks: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs"

    def rows(seeds: int) -> list[dict[str, float | None]]:
        plan = planned("henry-table6", "smoke", talks, seeds)
        records = summarise(plan.experiment, folder).records
        written = plan.experiment.page(folder)
        assert written.read_text().count("not run") == len([row for row in records if not row["seeds"]])
        assert json.loads(written.with_suffix(".json").read_text())["rows"][1]["paper"] == 24.53
        return records

    def train_seed(seed: int, *systems: str) -> None:
        cells = planned("henry-table6", "smoke", talks, seed).cells
        wanted = [(system, seed) for system in systems]
        train(folder, *[cell for cell in cells if (cell.settings["system"], cell.settings["seed"]) in wanted])

    assert {row["ours"] for row in rows(1)} == {None}
    train_seed(1, "without-g")
    alone = rows(1)[1]
    assert (alone["seeds"], alone["difference"], alone["p_value"]) == (1, None, None)
    train_seed(1, "qknorm")
    full, without_g, *others = rows(1)
    assert without_g["ours"] == alone["ours"]
    assert without_g["difference"] == pytest.approx((without_g["ours"] or 0) - (full["ours"] or 0))
    assert without_g["p_value"] is not None
    assert (full["paper"], without_g["paper_difference"], without_g["ours_minus_paper"]) == (33.24, -8.71, None)
    assert {row["ours"] for row in others} == {None}
    train_seed(2, "qknorm")
    assert [row["seeds"] for row in rows(2)[:2]] == [1, 1], "as many of each"
    train_seed(2, "without-g")
    full, *_ = rows(2)
    assert full["seeds"] == 2
    assert full["ours_sd"] is not None


def test_of_lines_too_short_for_bleu_no_row_is_called_better(talks: str, tmp_path: Path) -> None:
    plan = planned("henry-table2", "smoke", talks)
    cell = run_of(plan, "baseline")
    train(tmp_path, cell)
    assert not compared(plan, tmp_path).is_too_short
    for name in ("references", "hypotheses"):
        file = tmp_path / cell.name / "test" / f"{name}.txt"
        write_lines(file, ["red" for _ in read_lines(file)])
    assert compared(plan, tmp_path).sentences == [TOO_SHORT]


def test_runs_are_not_compared_across_a_change_of_the_text(talks: str, tmp_path: Path) -> None:
    plan, folder = planned("henry-table2", "smoke", talks), tmp_path / "runs"
    cells = [run_of(plan, row) for row in ("baseline", "qknorm")]
    train(folder, cells[0])
    test = Path(talks) / "test.gl"
    before = list(read_lines(test))
    write_lines(test, [*before[1:], before[0]])
    train(folder, cells[1])
    message = r"baseline_seed-1 and .*qknorm_seed-1 were trained on different text"
    with pytest.raises(InputError, match=message):
        compared(plan, folder)
    with pytest.raises(InputError, match=message):
        train(folder, *cells)


def test_rows_are_scored_against_their_own_references_only(talks: str, tmp_path: Path) -> None:
    plan = planned("henry-table2", "smoke", talks)
    cells = [run_of(plan, row) for row in ("baseline", "qknorm")]
    train(tmp_path, *cells)
    references = Run(tmp_path / cells[1].name).test_set().references
    write_lines(references, [line.upper() for line in read_lines(references)])
    with pytest.raises(InputError, match=r"references\.txt differ, so their runs cannot be compared"):
        compared(plan, tmp_path)


def test_language_models_are_not_compared_by_bleu(folder: Path) -> None:
    run(plan_sweep(folder / "tiny.yaml", None, ["p=2", "folds=null"]), folder / "out")
    with pytest.raises(InputError, match=r"holds language models.* summary.md"):
        as_systems(str(folder / "out"))
    assert as_systems("other") == ["other"]
