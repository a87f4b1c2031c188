from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.experiments.sweep.about import About
from qknorm.experiments.sweep.figures import draw
from qknorm.experiments.sweep.results import RunResult
from qknorm.experiments.sweep.statistics import Statistics, analyse
from qknorm.experiments.sweep.summary import answer, sentences, tables
from qknorm.experiments.sweep.views import summarise
from tests.experiments.sweep.outcomes import GAIN, NOTHING, sweep


def paragraph(statistics: Statistics) -> str:
    return " ".join(sentences(statistics))


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
    assert "Against p = 2 in the best loss, no normalisation was higher by 0." in text
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


def with_seeds(results: list[RunResult], seeds: int) -> list[RunResult]:
    return [replace(run, settings=run.settings | {"seed": seed}) for run in results for seed in range(seeds)]


def test_folds_are_counted_without_their_seeds(tmp_path: Path) -> None:
    runs = with_seeds(sweep({"same": GAIN}, folds=2), 3)
    statistics = analyse(runs)
    assert statistics is not None
    assert "With 2 folds no difference could be significant" in paragraph(statistics)
    assert len(draw(runs, tmp_path)) == 5


def test_seeds_are_called_seeds_where_there_are_no_folds(tmp_path: Path) -> None:
    runs = [
        replace(run, settings={key: value for key, value in run.settings.items() if key != "fold"} | {"seed": seed})
        for run in sweep({"same": NOTHING}, noise=0.01)
        for seed in [run.settings["fold"]]
    ]
    statistics = analyse(runs)
    assert statistics is not None
    assert "any other p (10 seeds)" in paragraph(statistics)
    assert "paired by seed" in tables(statistics)[1].note
    captions = " ".join(picture.caption for picture in draw(runs, tmp_path))
    assert "for every seed by itself" in captions
    assert "fold" not in paragraph(statistics) + captions


def test_one_fold_and_no_reference_are_not_compared() -> None:
    for results in (sweep({"same": {1.0: 0.0, 3.0: 0.0}}), sweep({"same": NOTHING}, folds=1)):
        statistics = analyse(results)
        assert statistics is not None
        assert not any(arm.differences for arm in statistics.arms)
        assert paragraph(statistics)
        assert tables(statistics)


def test_nothing_to_compare_is_no_error(tmp_path: Path) -> None:
    missing = RunResult(Path("x"), "language", {"p": 2, "fold": 0}, "missing")
    assert analyse([missing]) is None
    assert summarise(About(), [missing], tmp_path).sentences == []
    assert (tmp_path / "results.csv").read_text().endswith("missing\n")
    assert draw([missing], tmp_path) == []


def at_rate(results: list[RunResult], peak: float) -> list[RunResult]:
    return [replace(result, settings=result.settings | {"peak": peak}) for result in results]


def test_every_learning_rate_is_looked_at_by_itself(tmp_path: Path) -> None:
    runs = at_rate(sweep({"same": GAIN}), 0.001) + at_rate(sweep({"same": NOTHING}, noise=0.01), 0.003)
    found = answer(runs)
    low, high = " ".join(found.sentences).split("With peak 0.003:")
    assert "With peak 0.001:" in low
    assert "In the best loss, significantly different from p = 2: p = 3 lower by 0.0" in low
    assert "In the best loss there is no significant difference" in high
    assert [entry["condition"] for entry in found.numbers["statistics"]] == ["peak 0.001", "peak 0.003"]
    names = {picture.path.name for picture in draw(runs, tmp_path)}
    assert {"figure-1-same_peak-0.001.png", "figure-1-same_peak-0.003.png"} < names
    assert len(names) == 10
