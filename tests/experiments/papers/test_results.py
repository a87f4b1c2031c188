from __future__ import annotations

import json
from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError
from qknorm.evaluation.wording import TOO_SHORT
from qknorm.experiments.cells import Cell
from qknorm.experiments.machines import Machines
from qknorm.experiments.papers.output import write
from qknorm.experiments.papers.results import Row, rate_caveats, result_of
from qknorm.experiments.papers.views import view
from qknorm.runs.run import Run
from qknorm.screen import Screen
from tests.contents import translated
from tests.experiments.papers.plans import planned, run_of


def test_a_table_with_what_is_done_and_what_is_not(talks: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs"

    def rows(seeds: int) -> list[Row]:
        plan = planned("henry-table6", "smoke", talks, seeds)
        written = write(plan, view(plan.experiment, folder), folder)
        result = result_of(plan.experiment, plan.experiment.contests[0], folder).rows
        assert written.read_text().count("not run") == len([row for row in result if not row.seeds])
        assert json.loads(written.with_suffix(".json").read_text())["rows"][1]["paper"] == 24.53
        return result

    def run(*systems: str, seed: int) -> None:
        plan = planned("henry-table6", "smoke", talks, seed)
        (contest,) = plan.experiment.contests
        runs = [entrant.candidates[0].runs[seed - 1] for entrant in contest.entrants if entrant.row in systems]
        cells = [plan.cells[name] for name in runs]
        assert Machines(jobs=1).run_missing("test", cells, folder, Screen(quiet=True)) == {}

    assert {row.ours for row in rows(1)} == {None}
    run("without-g", seed=1)
    alone = rows(1)[1]
    assert (alone.seeds, alone.difference, alone.p_value) == (1, None, None)
    run("qknorm", seed=1)
    full, without_g, *others = rows(1)
    assert without_g.ours == alone.ours
    assert full.ours is not None
    assert without_g.ours is not None
    assert without_g.difference == pytest.approx(without_g.ours - full.ours)
    assert without_g.p_value is not None
    assert (full.paper, without_g.paper_difference, without_g.ours_minus_paper) == (33.24, -8.71, None)
    assert {row.ours for row in others} == {None}
    run("qknorm", seed=2)
    assert [row.seeds for row in rows(2)[:2]] == [1, 1], "as many of each"
    run("without-g", seed=2)
    full, *_ = rows(2)
    assert full.seeds == 2
    assert full.ours_sd is not None


def test_a_figure_stands_for_any_corpus_where_no_pair_is_named(own: str, talks: str, tmp_path: Path) -> None:
    experiment = planned(own, "smoke", talks).experiment
    assert [row.paper for row in result_of(experiment, experiment.contests[0], tmp_path).rows] == [None, 20]


@pytest.mark.parametrize(
    ("bleu", "expected"),
    [
        (
            {0.001: 3, 0.002: 2, 0.004: 1},
            "A norm was best at the lowest rate tried, so a lower one may be better still.",
        ),
        (
            {0.001: 1, 0.002: 2, 0.004: 3},
            "A norm was best at the highest rate tried, so a higher one may be better still.",
        ),
        ({0.001: 1, 0.002: 3, 0.004: 2}, None),
        ({0.001: 1, 0.002: 3}, None),  # the highest has failed, or is not done
        ({0.001: 3}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_best_rate_at_the_end_of_those_tried_is_told(
    bleu: dict[float, float], expected: str | None, talks: str, tmp_path: Path
) -> None:
    table = "{title: T, rates: [0.001, 0.002, 0.004], rows: [{like: qknorm, name: a, label: A norm}]}"
    (tmp_path / "rates.yaml").write_text(table)
    experiment = planned(str(tmp_path / "rates.yaml"), "smoke", talks).experiment
    (contest,) = experiment.contests
    for candidate in contest.entrants[0].candidates:
        if candidate.rate in bleu:
            run = Run(tmp_path / candidate.runs[0])
            run.save_result(translated(bleu[candidate.rate]))
    assert rate_caveats(experiment, contest, tmp_path) == ([] if expected is None else [expected])


def test_rows_that_were_best_at_the_same_end_share_a_sentence(own: str, talks: str, tmp_path: Path) -> None:
    experiment = planned(own, "smoke", talks).experiment
    (contest,) = experiment.contests
    for run in (run for entrant in contest.entrants for candidate in entrant.candidates for run in candidate.runs):
        Run(tmp_path / run).save_result(translated(4.0 if "rate-0.004" in run else 2.0))
    assert rate_caveats(experiment, contest, tmp_path) == [
        "QKNorm + LayerNorm and p = 3 & more were best at the highest rate tried, so a higher one may be better still."
    ]


def test_rates_are_compared_by_the_metric_that_chose_the_checkpoints(own: str, talks: str, tmp_path: Path) -> None:
    """Of a glossary BLEU is 0 at every rate, and the first one won."""
    (contest,) = planned(own, "smoke", talks).experiment.contests
    qknorm = contest.entrants[0]
    for candidate, chrf in zip(qknorm.candidates, (20.0, 30.0), strict=True):
        (tmp_path / candidate.runs[0]).mkdir(parents=True)
        Run(tmp_path / candidate.runs[0]).save_result(translated(0.0, best_dev_score=chrf))
    assert qknorm.chosen(tmp_path) == qknorm.candidates[1]


def test_of_lines_too_short_for_bleu_no_row_is_called_better(talks: str, tmp_path: Path) -> None:
    plan = planned("henry-table2", "smoke", talks)
    cell = run_of(plan, "baseline")
    assert Machines(jobs=1).run_missing("test", [cell], tmp_path, Screen(quiet=True)) == {}
    assert not result_of(plan.experiment, plan.experiment.contests[0], tmp_path).is_too_short
    for name in ("references", "hypotheses"):
        file = tmp_path / cell.name / "test" / f"{name}.txt"
        write_lines(file, ["red" for _ in read_lines(file)])
    assert result_of(plan.experiment, plan.experiment.contests[0], tmp_path).sentences == [TOO_SHORT]


def test_no_difference_from_a_figure_whose_text_is_not_known(own: str) -> None:
    table = planned(own, "smoke", None).experiment.table
    assert not table.is_comparable(None)
    assert not table.is_comparable("gl-en")
    of_one_pair = table.model_copy(update={"pairs": ("gl-en",)})
    assert of_one_pair.is_comparable("gl-en")
    assert not of_one_pair.is_comparable(None)


def test_runs_are_not_compared_across_a_change_of_the_text(talks: str, tmp_path: Path) -> None:
    plan, folder = planned("henry-table2", "smoke", talks), tmp_path / "runs"
    cells = [run_of(plan, row) for row in ("baseline", "qknorm")]

    def run(*chosen: Cell) -> None:
        assert Machines(jobs=1).run_missing("test", chosen, folder, Screen(quiet=True)) == {}

    run(cells[0])
    test = Path(talks) / "test.gl"
    before = list(read_lines(test))
    write_lines(test, [*before[1:], before[0]])
    run(cells[1])
    message = r"baseline_seed-1 and .*qknorm_seed-1 were trained on different text"
    with pytest.raises(InputError, match=message):
        result_of(plan.experiment, plan.experiment.contests[0], folder)
    with pytest.raises(InputError, match=message):
        run(*cells)


def test_rows_are_scored_against_their_own_references_only(talks: str, tmp_path: Path) -> None:
    plan = planned("henry-table2", "smoke", talks)
    cells = [run_of(plan, row) for row in ("baseline", "qknorm")]
    assert Machines(jobs=1).run_missing("test", cells, tmp_path, Screen(quiet=True)) == {}
    references = Run(tmp_path / cells[1].name).test_set().references
    write_lines(references, [line.upper() for line in read_lines(references)])
    with pytest.raises(InputError, match=r"references\.txt differ, so their runs cannot be compared"):
        result_of(plan.experiment, plan.experiment.contests[0], tmp_path)
