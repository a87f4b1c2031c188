from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from qknorm.experiments.citations import bibliography
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.page import write
from qknorm.experiments.recipe import About
from qknorm.experiments.results import RunResult
from qknorm.experiments.views.p import answer, sentences, tables, verdict
from qknorm.experiments.views.p_figures import draw
from qknorm.experiments.views.p_statistics import MEASURES, Statistics, analyse
from tests.experiments.views.outcomes import GAIN, NOTHING, sweep


def analysed(runs: list[RunResult]) -> Statistics:
    statistics = analyse(runs)
    assert statistics is not None
    return statistics


def paragraph(statistics: Statistics) -> str:
    return " ".join(sentences(statistics))


def test_a_gain_is_found_under_the_start_that_has_it() -> None:
    statistics = analysed(sweep({"same": GAIN, "comparable": NOTHING}))
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


def test_times_under_both_starts_are_told() -> None:
    runs = [
        replace(run, measured=run.measured | {"seconds": 50.0})
        if run.settings.get("start") == "same" and run.settings["p"] == 3
        else run
        for run in sweep({"same": NOTHING, "comparable": NOTHING})
    ]
    statistics = analysed(runs)
    assert "Training took between 0.92 and 4.17 of the time of p = 2" in paragraph(statistics)


FEW = (
    "With 3 folds and 3 comparisons Wilcoxon's test cannot fall below 0.05 after correction, so the paired t test "
    "alone decides; it takes differences for normally distributed."
)


@pytest.mark.parametrize(
    ("comparable", "folds", "noise", "told", "not_told"),
    [
        (NOTHING, 10, 0.001, ["p = 2: p = 3 lower by 0.02", "gone under the comparable one"], ["alone"]),
        (GAIN, 10, 0.001, ["So p > 2 is better under both starts"], ["alone"]),
        (NOTHING, 3, 0.0001, [FEW, "p = 2: p = 3 lower by 0.02", "gone under the comparable one"], []),
        (NOTHING, 3, 0.05, [FEW], ["significantly different"]),
        (NOTHING, 1, 0.001, ["With 1 fold no difference could be significant"], ["So "]),
    ],
    ids=["gone", "both", "few folds", "noise", "one fold"],
)
def test_a_gain_under_the_same_start_is_called_what_it_is(
    comparable: dict[float, float], folds: int, noise: float, told: list[str], not_told: list[str]
) -> None:
    statistics = analysed(sweep({"same": GAIN, "comparable": comparable}, folds, noise))
    text = paragraph(statistics)
    assert [part for part in told if part not in text] == []
    assert [part for part in not_told if part in text] == []
    marked = "the t test alone finds" if folds < 6 and statistics.can_tell else "both find"
    assert f"* marks what {marked}" in tables(statistics)[1].note


def test_no_difference_is_called_no_significant_difference() -> None:
    text = paragraph(analysed(sweep({"same": NOTHING, "comparable": NOTHING}, noise=0.01)))
    assert "no significant difference between p = 2 and any other p (10 folds)" in text
    assert "is not confirmed at this size" in text
    assert "significantly different" not in text


def started_as_sharp(q: float, gain: float, sharp: float, p: float = 2.0, noise: float = 0.0001) -> list[RunResult]:
    """Three folds in which p = q is better than p = 2 by `gain`, and p started as sharp as q by `sharp`."""
    runs = sweep({"same": {2.0: 0.0, q: -gain, 9.0: -sharp}}, folds=3, noise=noise)
    return [replace(run, settings=run.settings | {"p": p, "start": q}) if run.p == 9 else run for run in runs]


@pytest.mark.parametrize(
    ("gain", "sharp", "conclusion"),
    [
        (0.4, 0.0, "p = 3 is better even so, and its gain over p = 2 is more than that of a larger g."),
        (0.4, 0.4, "they cannot be told apart, so the gain of p = 3 over p = 2 may be that of a larger g."),
        (0.0, 0.0, "they cannot be told apart, and p = 3 had no significant gain over p = 2."),
        (0.1, 0.4, "p = 2 is better then, and a larger g alone gives more than the gain of p = 3."),
        (0.0, 0.4, "p = 2 is better then, and p = 3 had no significant gain over p = 2."),
    ],
)
def test_whether_a_gain_is_that_of_a_larger_g_is_answered(gain: float, sharp: float, conclusion: str) -> None:
    runs = started_as_sharp(3.0, gain, sharp, noise=0.001)
    statistics = analysed(runs)
    (pair,) = statistics.started_as_sharp
    by_fold = [
        {run.settings["fold"]: run.measured["best_val_loss"] for run in runs if (run.p, run.start) == system}
        for system in ((3.0, "same"), (2.0, "3.0"))
    ]
    differences = [by_fold[0][fold] - by_fold[1][fold] for fold in range(3)]
    expected = stats.ttest_1samp(differences, 0.0)
    found = pair.differences["best_val_loss"]
    assert found.estimate.mean == pytest.approx(sum(differences) / 3)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.estimate.low, found.estimate.high) == pytest.approx(expected.confidence_interval(0.95))
    (sentence,) = [
        one for one in sentences(statistics) if one.startswith("p = 3 and p = 2 started as sharp differ by ")
    ]
    assert f"{found.estimate.mean:+.4f} [" in sentence
    assert "in the best loss (3 folds, paired t test, p " in sentence
    assert sentence.endswith(conclusion)
    assert sentence in verdict(statistics)
    assert [row[0] for row in tables(statistics)[-1].rows] == ["p = 3 less p = 2, as sharp as p = 3"]


def test_another_p_than_2_can_be_started_as_sharp() -> None:
    statistics = analysed(started_as_sharp(4.0, 0.0, 0.1, p=3.0))
    (sentence,) = [one for one in sentences(statistics) if "started as sharp" in one]
    assert sentence.startswith("p = 4 and p = 3 started as sharp differ by +0.0999 [")
    assert sentence.endswith(": p = 3 is better then.")


def test_several_starts_are_corrected_for_each_other() -> None:
    both = started_as_sharp(3.0, 0.1, 0.1, noise=0.01) + started_as_sharp(4.0, 0.1, 0.1, noise=0.01)
    statistics = analysed(list({tuple(run.settings.items()): run for run in both}.values()))
    assert [pair.q for pair in statistics.started_as_sharp] == [3.0, 4.0]
    assert {pair.differences["area"].comparisons for pair in statistics.started_as_sharp} == {2}
    assert paragraph(statistics).count("paired t test, corrected p = ") == 2


def test_a_start_as_sharp_as_a_p_that_was_not_run_is_compared_with_nothing() -> None:
    runs = [run for run in started_as_sharp(4.0, 0.1, 0.1) if (run.p, run.start) != (4.0, "same")]
    statistics = analysed(runs)
    assert statistics.started_as_sharp == []
    assert "started as sharp" not in paragraph(statistics)


def test_seeds_are_called_seeds_where_there_are_no_folds(tmp_path: Path) -> None:
    runs = [
        replace(run, settings={key: value for key, value in run.settings.items() if key != "fold"} | {"seed": seed})
        for run in sweep({"same": NOTHING}, noise=0.01)
        for seed in [run.settings["fold"]]
    ]
    statistics = analysed(runs)
    assert statistics.unit == "seed"
    assert "any other p (10 seeds)" in paragraph(statistics)
    assert "paired by seed" in tables(statistics)[1].note
    captions = " ".join(picture.caption for picture in draw(runs, tmp_path))
    assert "for every seed by itself" in captions
    assert "fold" not in paragraph(statistics) + captions


def test_one_fold_and_no_reference_are_not_compared() -> None:
    for results in (sweep({"same": {1.0: 0.0, 3.0: 0.0}}), sweep({"same": NOTHING}, folds=1)):
        statistics = analysed(results)
        assert not any(arm.differences for arm in statistics.arms)
        assert paragraph(statistics)
        assert tables(statistics)


def test_nothing_to_compare_is_no_error(tmp_path: Path) -> None:
    missing = [RunResult(Path("x"), "language", {"p": 2, "fold": 0}, "missing")]
    found = answer(Experiment(), missing)
    assert (found.sentences, found.tables, found.draw(tmp_path)) == ([], [], [])


def at_rate(results: list[RunResult], peak: float) -> list[RunResult]:
    return [replace(result, settings=result.settings | {"peak": peak}) for result in results]


def test_every_learning_rate_is_looked_at_by_itself(tmp_path: Path) -> None:
    runs = at_rate(sweep({"same": GAIN}), 0.001) + at_rate(sweep({"same": NOTHING}, noise=0.01), 0.003)
    found = answer(Experiment(), runs)
    low, high = " ".join(found.sentences).split("With peak 0.003:")
    assert "With peak 0.001:" in low
    assert "In the best loss, significantly different from p = 2: p = 3 lower by 0.0" in low
    assert "In the best loss there is no significant difference" in high
    assert list(dict.fromkeys(record["condition"] for record in found.records)) == ["peak 0.001", "peak 0.003"]
    names = {picture.path.name for picture in found.draw(tmp_path)}
    assert {"figure-1-same_peak-0.001.png", "figure-1-same_peak-0.003.png"} < names
    assert len(names) == 10


def test_the_tables_come_in_every_form_and_cite_the_paper(tmp_path: Path) -> None:
    experiment = Experiment(about=About(title="A sweep", shrunk="SMALL SIZE.", paper="lopez-rubio-2026"))
    runs = started_as_sharp(3.0, 0.4, 0.0)
    found = answer(experiment, runs)
    write(experiment, runs, found, [], tmp_path)
    page = (tmp_path / "summary.md").read_text()
    assert page.endswith("](https://arxiv.org/abs/2602.05006), in references.bib.\n")
    assert (tmp_path / "references.bib").read_text() == bibliography()
    tex = (tmp_path / "summary.tex").read_text()
    assert tex.count(r"\begin{table}") == len(found.tables) == 3
    assert tex.count("SMALL SIZE.") == 3
    assert r"p = 3 less p = 2, as sharp as p = 3 & $-$0.40" in tex
    assert r"same start of $\alpha$ for every p." in tex
    with (tmp_path / "summary.csv").open() as file:
        records = list(csv.DictReader(file))
    (tested,) = [
        one for one in records if one["system"] == "p = 3" and one["measure"] == "best_val_loss" and one["mean"]
    ]
    (arm,) = [arm for arm in analysed(runs).arms if arm.label == "p = 3"]
    difference = arm.differences["best_val_loss"]
    assert float(tested["mean"]) == arm.measures["best_val_loss"].mean
    assert float(tested["time_ratio"]) == arm.time_ratio
    assert float(tested["difference_low"]) == difference.estimate.low
    assert float(tested["t_test_corrected"]) == difference.t_test_corrected
    assert (tested["judged_by"], tested["significant"]) == ("t_test", "True")
    assert [one["measure"] for one in records if one["compared_with"] == "p = 2, as sharp as p = 3"] == list(MEASURES)
