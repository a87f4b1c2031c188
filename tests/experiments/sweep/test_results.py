from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.experiments.sweep.figures import draw
from qknorm.experiments.sweep.grid import plan
from qknorm.experiments.sweep.rates import answer as answer_of_rates
from qknorm.experiments.sweep.results import RunResult, by_condition, load_results, told_apart
from qknorm.experiments.sweep.summary import answer
from tests.experiments.sweep.outcomes import GAIN, result, sweep
from tests.sweeps import TINY, run


def test_a_baseline_with_a_further_key_stands_in_the_tables_under_a_name_that_says_so(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(TINY.replace("{qk_norm: none}", "{qk_norm: none, dropout: 0.1}, {bias: true}"))
    planned = plan(folder / "tiny.yaml")
    assert run(planned, folder / "out") == {}
    found = answer(load_results(folder / "out"))
    estimates, _ = found.tables
    names = ["p = 2", "p = 3", "no normalisation, dropout 0.1", "Lp norm, bias True"]
    assert [row[0] for row in estimates.rows] == names
    assert "no normalisation, dropout 0.1" in " ".join(found.sentences)


def beside(settings: dict[str, object], folds: int = 10) -> list[RunResult]:
    return [
        replace(result({**settings, "fold": fold}, [3.0, 2.5, 2.3]), is_baseline=True, largest_logits=[1.0] * 3)
        for fold in range(folds)
    ]


def with_key(results: list[RunResult], **settings: object) -> list[RunResult]:
    return [replace(one, settings=one.settings | settings) for one in results]


AT_TWO_RATES = [
    one for peak in (0.001, 0.003) for one in with_key([run for run in sweep({"same": GAIN}) if run.p], peak=peak)
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
    assert results[-1].label == label
    assert results[-1].is_beside
    groups = by_condition(results)
    assert list(groups) == ["peak 0.001", "peak 0.003"]
    assert [condition for condition, runs in groups.items() if results[-1] in runs] == conditions


def test_a_further_key_is_no_other_p(tmp_path: Path) -> None:
    """Its runs are not mixed with those of the same p, and a curve of another length is not subtracted."""
    share = [0.5, 0.5]
    short = [
        replace(one, steps=[50, 300], val_losses=[3.0, 2.3], entropy=share, saturated=share, use_of_bound=share)
        for one in beside({"p": 2, "validate_every": 150})
    ]
    results = told_apart([*sweep({"same": GAIN}), *short])
    estimates, _ = answer(results).tables
    assert estimates.rows[1][0] == "p = 2"
    assert estimates.rows[1] == answer(sweep({"same": GAIN})).tables[0].rows[1]
    assert len(draw(results, tmp_path)) == 5


def test_a_rate_of_its_own_is_a_column_of_the_learning_rates() -> None:
    grid = [replace(one, largest_logits=[1.0] * 3) for one in AT_TWO_RATES]
    losses, _ = answer_of_rates(told_apart([*grid, *beside({"qk_norm": "none", "peak": 0.1})])).tables
    assert losses.columns[:4] == ["", "0.001", "0.003", "0.1"]
    assert losses.rows[-1][:4] == ["no normalisation", "", "", "2.3000 ± 0.0000"]
