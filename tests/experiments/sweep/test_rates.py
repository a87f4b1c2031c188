from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.experiments.sweep.about import About
from qknorm.experiments.sweep.rates import sensitivity
from qknorm.experiments.sweep.results import RunResult
from qknorm.experiments.sweep.views import summarise
from tests.experiments.sweep.outcomes import result

LOGITS = {"none": 200.0, "rms": 20.0}


def rate_sweep(lost: dict[str, dict[float, float]]) -> list[RunResult]:
    """Two seeds of each norm at each rate; `lost` is how far its final loss is above 2."""
    return [
        replace(
            result({"qk_norm": norm, "optimizer": "adamw", "peak": rate, "seed": seed}, [3.0, 2.0 + above]),
            largest_logits=[LOGITS[norm], 1.0],
        )
        for norm, by_rate in lost.items()
        for rate, above in by_rate.items()
        for seed in (1, 2)
    ]


def test_the_learning_rate_s_page(tmp_path: Path) -> None:
    runs = rate_sweep({"none": {0.001: 0.0, 0.01: 0.6}, "rms": {0.001: 0.1, 0.01: 0.0}})
    answer = summarise(About(title="Rates", question="Which?", shows="rates"), runs, tmp_path)
    losses, logits = answer.tables
    assert losses.columns == ["", "0.001", "0.01", "best rate", "sensitivity"]
    assert [(row[0], row[3], row[4]) for row in losses.rows] == [
        ("no normalisation", "0.001", "0.3000 ± 0.0000"),
        ("RMSNorm", "0.01", "0.0500 ± 0.0000"),
    ]
    assert [row[1].split()[0] for row in logits.rows] == ["200.0", "20.0"]
    assert answer.sentences == [
        "With optimizer adamw, the lowest final losses over the learning rate were: no normalisation 2.0000 at 0.001 "
        "(mean of all rates 0.3000 higher); RMSNorm 2.0000 at 0.01 (mean of all rates 0.0500 higher)."
    ]
    page = (tmp_path / "summary.md").read_text()
    assert page.startswith("# Rates\n\n**Question.** Which?\n\n**Result.** With optimizer adamw")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("learning-rates", "logits") for kind in ("png", "svg", "pdf")
    }


def test_runs_that_failed_stand_where_their_loss_would(tmp_path: Path) -> None:
    runs = rate_sweep({"none": {0.001: 0.0, 0.1: 0.0}, "rms": {0.001: 0.1}})
    broken = [replace(run, status="failed") if run.settings["peak"] == 0.1 else run for run in runs]
    losses, logits = summarise(About(title="Rates", question="Which?", shows="rates"), broken, tmp_path).tables
    assert losses.columns[1:3] == ["0.001", "0.1"]
    assert [row[2] for row in losses.rows] == [row[2] for row in logits.rows] == ["2 failed", ""]
    one_left = [*broken[:2], replace(broken[2], status="done"), *broken[3:]]
    losses, _ = summarise(About(title="Rates", question="Which?", shows="rates"), one_left, tmp_path).tables
    assert losses.rows[0][2] == "2.0000, 1 failed"


def test_the_sensitivity_of_a_fold_is_the_mean_of_its_seeds() -> None:
    losses = {(0, 1): (2.0, 2.2), (0, 2): (3.0, 3.4), (1, 1): (2.0, 2.6), (1, 2): (4.0, 4.4)}  # by fold and seed
    by_rate = {
        rate: [result({"fold": fold, "seed": seed}, [both[place]]) for (fold, seed), both in losses.items()]
        for place, rate in enumerate((0.001, 0.01))
    }
    found = sensitivity(by_rate)
    assert found.count == 2
    assert found.mean == pytest.approx((0.1 + 0.2 + 0.3 + 0.2) / 4)
