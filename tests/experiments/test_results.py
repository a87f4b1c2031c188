from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.experiments.experiment import Experiment
from qknorm.experiments.results import RunResult, by_condition, told_apart
from qknorm.experiments.spanned import plan_sweep
from qknorm.experiments.views import p, rates
from tests.experiments.views.outcomes import GAIN, result, sweep
from tests.sweeps import TINY, results_in, run


def test_a_baseline_with_a_further_key_stands_in_the_tables_under_a_name_that_says_so(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(TINY.replace("{qk_norm: none}", "{qk_norm: none, dropout: 0.1}, {bias: true}"))
    planned = plan_sweep(folder / "tiny.yaml")
    assert run(planned, folder / "out") == {}
    found = p.answer(planned.experiment, results_in(folder / "out"))
    estimates, _ = found.tables
    names = ["p = 2", "p = 3", "no normalisation, dropout 0.1", "Lp norm, bias True"]
    assert [row[0] for row in estimates.rows] == names
    assert "no normalisation, dropout 0.1" in " ".join(found.sentences)


def beside(settings: dict[str, object], folds: int = 10) -> list[RunResult]:
    return [result({**settings, "fold": fold}, [3.0, 2.5, 2.3], is_baseline=True) for fold in range(folds)]


def with_key(results: list[RunResult], **settings: object) -> list[RunResult]:
    return [replace(run, settings=run.settings | settings) for run in results]


AT_TWO_RATES = [
    result for peak in (0.001, 0.003) for result in with_key([run for run in sweep({"same": GAIN}) if run.p], peak=peak)
]


@pytest.mark.parametrize(
    ("baseline", "label", "conditions"),
    [
        ({"qk_norm": "none", "peak": 0.003}, "no normalisation", ["peak 0.003"]),
        ({"qk_norm": "none", "peak": 0.1}, "no normalisation, peak 0.1", ["peak 0.001", "peak 0.003"]),
        ({"qk_norm": "rms", "peak": 0.001, "dropout": 0.1}, "RMSNorm, dropout 0.1", ["peak 0.001"]),
        ({"p": 2, "start": 4, "peak": 0.001}, "p = 2, as sharp as p = 4", ["peak 0.001"]),
        ({"p": 2, "dropout": 0.1}, "p = 2, dropout 0.1", ["peak 0.001", "peak 0.003"]),
        ({"p": 3, "start": "comparable", "bias": 1}, "p = 3, start comparable, bias 1", ["peak 0.001", "peak 0.003"]),
    ],
)  # fmt: skip
def test_a_baseline_stands_beside_whatever_it_can_be_compared_with(
    baseline: dict[str, object], label: str, conditions: list[str]
) -> None:
    results = told_apart([*AT_TWO_RATES, *beside(baseline)])
    assert results[-1].label() == label
    assert results[-1].is_beside
    groups = by_condition(results)
    assert list(groups) == ["peak 0.001", "peak 0.003"]
    assert [condition for condition, runs in groups.items() if results[-1] in runs] == conditions


def test_a_further_key_is_no_other_p(tmp_path: Path) -> None:
    """Its runs are not mixed with those of the same p, and a curve of another length is not subtracted."""
    short = [result(run.settings, [3.0, 2.3], is_baseline=True) for run in beside({"p": 2, "validate_every": 150})]
    results = told_apart([*sweep({"same": GAIN}), *short])
    found = p.answer(Experiment(), results)
    assert found.tables[0].rows[1][0] == "p = 2"
    assert found.tables[0].rows[1] == p.answer(Experiment(), sweep({"same": GAIN})).tables[0].rows[1]
    assert len(found.draw(tmp_path)) == 5


def test_a_rate_of_its_own_is_a_column_of_the_learning_rates() -> None:
    runs = told_apart([*AT_TWO_RATES, *beside({"qk_norm": "none", "peak": 0.1})])
    losses, _ = rates.answer(Experiment(), runs).tables
    assert losses.columns[:4] == ["", "0.001", "0.003", "0.1"]
    assert losses.rows[-1][:4] == ["no normalisation", "", "", "2.3000 ± 0.0000"]
