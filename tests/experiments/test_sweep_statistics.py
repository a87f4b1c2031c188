from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from qknorm.experiments.sweep.figures import draw
from qknorm.experiments.sweep.results import RunResult
from qknorm.experiments.sweep.statistics import analyse, area_under_curve, estimate, holm, iterations_to
from qknorm.experiments.sweep.summary import as_markdown, paragraph, summarise, tables


def result(settings: dict[str, Any], losses: list[float], seconds: float = 10.0) -> RunResult:
    steps, layers = [100 * (i + 1) for i in range(len(losses))], 2
    normalised = settings.get("qk_norm") is None
    measured = {"best_val_loss": min(losses), "final_val_loss": losses[-1], "best_step": 1, "seconds": seconds}
    alphas = [[12.0] * layers for _ in losses] if normalised else []
    share = [0.5 for _ in losses]
    return RunResult(
        "", "language", settings, "done", measured, steps, losses, alphas, 12.0, share, share, share * normalised
    )


def sweep(effects: dict[str, dict[float, float]], folds: int = 10, noise: float = 0.001) -> list[RunResult]:
    """Runs whose loss is that of the fold, plus an effect of p, plus noise."""
    rng, results = random.Random(0), []
    for fold in range(folds):
        difficulty = rng.gauss(0, 0.1)
        for start, by_p in effects.items():
            for p, effect in by_p.items():
                end = 2.0 + difficulty + effect + rng.gauss(0, noise)
                results.append(result({"p": p, "start": start, "fold": fold}, [end + 1, end + 0.3, end], 10 + p))
        end = 2.2 + difficulty + rng.gauss(0, noise)
        results.append(result({"qk_norm": "none", "fold": fold}, [end + 1, end + 0.3, end], 11.0))
    return results


NOTHING = {1.0: 0.0, 2.0: 0.0, 3.0: 0.0}
GAIN = {1.0: 0.0, 2.0: 0.0, 3.0: -0.02}


def test_holm_corrects_as_in_his_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_interval_is_students() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == pytest.approx(2.0)
    assert found.high is not None
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5)
    assert estimate([1.0]).low is None


def test_the_area_and_the_way_to_a_loss() -> None:
    run = result({}, [3.0, 2.0, 1.5])
    assert area_under_curve(run) == pytest.approx((2.5 + 1.75) / 2)
    assert iterations_to(2.5, run) == pytest.approx(150)
    assert iterations_to(3.5, run) == 100
    assert iterations_to(1.0, run) == math.inf


def test_a_gain_is_found_under_the_start_that_has_it() -> None:
    statistics = analyse(sweep({"same": GAIN, "comparable": NOTHING}))
    assert statistics is not None
    (arm,) = [arm for arm in statistics.of("same") if arm.p == 3]
    difference = arm.differences["best_val_loss"]
    assert difference.is_significant
    assert difference.estimate.mean == pytest.approx(-0.02, abs=0.002)
    assert difference.estimate.count == 10
    assert arm.time_ratio == pytest.approx(13 / 12)
    assert not any(
        arm.differences["best_val_loss"].is_significant for arm in statistics.of("comparable") if arm.p not in (2, None)
    )
    text = paragraph(statistics)
    assert "significantly different from p = 2: p = 3 lower by 0.02" in text
    assert "gone under the comparable one" in text
    assert "No normalisation at all was higher by 0." in text
    assert "Training took between 0.92 and 1.08 of the time of p = 2" in text


def test_no_difference_is_called_no_significant_difference() -> None:
    statistics = analyse(sweep({"same": NOTHING, "comparable": NOTHING}, noise=0.01))
    assert statistics is not None
    text = paragraph(statistics)
    assert "no significant difference between p = 2 and any other p (10 folds)" in text
    assert "is not confirmed at this size" in text
    assert "significantly different" not in text


def test_a_gain_under_both_starts_is_no_head_start() -> None:
    statistics = analyse(sweep({"same": GAIN, "comparable": GAIN}))
    assert statistics is not None
    assert "So p > 2 is better under both starts" in paragraph(statistics)


def test_too_few_folds_claim_nothing() -> None:
    statistics = analyse(sweep({"same": GAIN, "comparable": NOTHING}, folds=3))
    assert statistics is not None
    text = paragraph(statistics)
    assert "With 3 folds no difference could be significant" in text
    assert "So " not in text


def test_every_run_reaches_the_target() -> None:
    results = sweep({"same": NOTHING})
    statistics = analyse(results)
    assert statistics is not None
    assert all(iterations_to(statistics.target_loss, run) < math.inf for run in results)
    assert as_markdown(tables(statistics)).count("| p = 3 |") == 2


def test_one_fold_and_no_reference_are_not_compared() -> None:
    for results in (sweep({"same": {1.0: 0.0, 3.0: 0.0}}), sweep({"same": NOTHING}, folds=1)):
        statistics = analyse(results)
        assert statistics is not None
        assert not any(arm.differences for arm in statistics.arms)
        assert paragraph(statistics)
        assert tables(statistics)


def test_nothing_to_compare_is_no_error(tmp_path: Path) -> None:
    missing = RunResult("x", "language", {"p": 2, "fold": 0}, "missing")
    assert analyse([missing]) is None
    assert summarise([missing], tmp_path) == ""
    assert (tmp_path / "results.csv").read_text().endswith("missing\n")
    assert draw([missing], tmp_path) == []


def test_ten_figures_for_two_starts(tmp_path: Path) -> None:
    written = draw(sweep({"same": NOTHING, "comparable": NOTHING}), tmp_path)
    assert len(written) == 10
    assert len(list(tmp_path.glob("*.svg"))) == 10
    assert all(path.stat().st_size > 5000 for path in written)
