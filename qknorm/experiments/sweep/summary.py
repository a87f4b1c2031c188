"""What a sweep says about p, in words and tables, generated from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from qknorm.experiments.sweep.answer import Answer, Table
from qknorm.experiments.sweep.results import RunResult, by_condition
from qknorm.experiments.sweep.statistics import MEASURES, REFERENCE, Arm, Difference, Estimate, Statistics, analyse

_START = {
    "same": "With one and the same start of α for every p",
    "comparable": "With starts of α that make every p equally sharp",
}
_HEADINGS = {
    "best_val_loss": "best loss",
    "final_val_loss": "final loss",
    "area": "area under the curve",
    "iterations_to_target": "iterations to the target",
}


def answer(results: Sequence[RunResult]) -> Answer:
    """The claims of the second paper, under each learning rate or whatever else varies by itself."""
    whole = Answer()
    for condition, runs in by_condition(results).items():
        statistics = analyse(runs)
        if statistics is not None:
            opening = [f"With {condition}:"] if condition else []
            whole.sentences.extend([*opening, *sentences(statistics)])
            whole.verdict.extend([" ".join([*opening, one]) for one in verdict(statistics)])
            whole.tables.extend(tables(statistics, condition))
            whole.numbers.setdefault("statistics", []).append({"condition": condition} | statistics.as_dict())
    return whole


def sentences(statistics: Statistics) -> list[str]:
    """What the sweep says about the claims of the second paper. Significant means: both tests, after Holm."""
    about = [sentence for start in statistics.starts for sentence in _about(start, statistics)]
    return [*about, *verdict(statistics), *_about_time(statistics)]


def tables(statistics: Statistics, condition: str = "") -> list[Table]:
    """Per start, the estimates of every measure, and the differences to p = 2."""
    by_start = []
    headings = [_HEADINGS[name] for name in MEASURES]
    for start in statistics.starts:
        arms = statistics.of(start)
        estimates = [
            [
                arm.label,
                *(_interval(arm.measures[name], _digits(name)) for name in MEASURES),
                "" if arm.time_ratio is None else f"{arm.time_ratio:.2f}",
            ]
            for arm in arms
        ]
        differences = [
            [arm.label, *(_tested(arm.differences[name], _digits(name)) for name in MEASURES)]
            for arm in arms
            if arm.differences
        ]
        note = f"Mean and 95 % interval; the target is a loss of {statistics.target_loss:.2f}."
        title = _START[start] + (f", {condition}" if condition else "")
        by_start.append(Table(title, note, ["", *headings, "time / p = 2"], estimates))
        note = (
            f"Difference to p = 2, paired by {statistics.unit}, with its 95 % interval; Holm-corrected p-values of the "
            "t test and of Wilcoxon's."
        )
        by_start.append(Table("", note, ["", *headings], differences))
    return by_start


def _about(start: str, statistics: Statistics) -> list[str]:
    arms = statistics.of(start)
    normalised = [arm for arm in arms if arm.p is not None]
    best = min(normalised, key=lambda arm: arm.measures["best_val_loss"].mean)
    reference = next((arm for arm in arms if arm.label == REFERENCE), None)
    opening = f"{_START[start]}, the best validation loss was lowest at {best.label}"
    opening += f" ({_interval(best.measures['best_val_loss'], 4)}"
    if reference is None:
        return [opening + "); p = 2 was not run, so nothing is compared with it."]
    count = reference.measures["best_val_loss"].count
    counted = f"{count} {statistics.unit}{'s' * (count != 1)}"
    if best is not reference:
        opening += f"; p = 2: {_interval(reference.measures['best_val_loss'], 4)}"
    sentences = [opening + ")."]
    compared = [arm for arm in normalised if arm.differences]
    if not _can_tell(arms):
        return [*sentences, f"With {counted} no difference could be significant."]
    for name, what in (
        ("best_val_loss", "the best loss"),
        ("final_val_loss", "the final loss"),
        ("area", "the area under the curve"),
    ):
        sentences.append(_compared(compared, name, what, counted))
    beside = [arm for arm in arms if arm.p is None and arm.differences]
    if beside:
        sentences.append(f"Against p = 2 in the best loss, {'; '.join(map(_against_reference, beside))}.")
    return sentences


def _against_reference(arm: Arm) -> str:
    difference = arm.differences["best_val_loss"]
    what = f"was {_direction(difference, 4)}" if difference.is_significant else "made no significant difference"
    return f"{arm.label} {what}"


def _compared(arms: Sequence[Arm], name: str, what: str, counted: str) -> str:
    different = [arm for arm in arms if arm.differences[name].is_significant]
    if not different:
        return f"In {what} there is no significant difference between p = 2 and any other p ({counted})."
    listed = ", ".join(f"{arm.label} {_direction(arm.differences[name], _digits(name))}" for arm in different)
    others = [arm.label for arm in arms if arm not in different]
    rest = f"; no significant difference for {', '.join(others)}" if others else ""
    return f"In {what}, significantly different from p = 2: {listed}{rest}."


def verdict(statistics: Statistics) -> list[str]:
    """The question: is p > 2 better, and is it still when it has no head start?"""
    better = {
        start: [
            arm.label
            for arm in statistics.of(start)
            if arm.p is not None
            and arm.p > 2
            and arm.differences
            and arm.differences["best_val_loss"].is_significant
            and arm.differences["best_val_loss"].estimate.mean < 0
        ]
        for start in statistics.starts
    }
    if set(better) != {"same", "comparable"} or not _can_tell(statistics.arms):
        return []
    same, comparable = better["same"], better["comparable"]
    if not same and not comparable:
        return ["So the claim that p > 2 ends with a lower loss is not confirmed at this size, under either start."]
    if same and not comparable:
        return [
            "So the gain of p > 2 is there under the same start and gone under the comparable one: it is what a "
            "head start of sharper attention would give."
        ]
    if comparable and not same:
        return [f"So {', '.join(comparable)} is better than p = 2 only when all p start equally sharp."]
    return [
        f"So p > 2 is better under both starts ({', '.join(same)}; {', '.join(comparable)}): not only a head start."
    ]


def _can_tell(arms: Sequence[Arm]) -> bool:
    """Whether there are folds or seeds enough: with n Wilcoxon's test gives at least 2/2ⁿ, before correction."""
    return any(difference.can_be_significant for arm in arms for difference in arm.differences.values())


def _about_time(statistics: Statistics) -> list[str]:
    ratios = {arm.label: arm.time_ratio for arm in statistics.arms if arm.time_ratio is not None}
    beside = {arm.label for arm in statistics.arms if arm.p is None}
    of_p = [ratio for label, ratio in ratios.items() if label not in beside]
    if not of_p:
        return []
    others = "".join(f"; with {label} {ratio:.2f}" for label, ratio in ratios.items() if label in beside)
    return [f"Training took between {min(of_p):.2f} and {max(of_p):.2f} of the time of p = 2{others}."]


def _direction(difference: Difference, digits: int) -> str:
    mean = difference.estimate.mean
    return f"{'lower' if mean < 0 else 'higher'} by {abs(mean):.{digits}f}"


def _digits(name: str) -> int:
    return 0 if name == "iterations_to_target" else 4


def _interval(value: Estimate, digits: int) -> str:
    if value.low is None or value.high is None:
        return f"{value.mean:.{digits}f}"
    return f"{value.mean:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def _tested(difference: Difference, digits: int) -> str:
    star = " *" if difference.is_significant else ""
    estimate = difference.estimate
    return (
        f"{estimate.mean:+.{digits}f} [{estimate.low:+.{digits}f}, {estimate.high:+.{digits}f}] "
        f"({_p_value(difference.t_test_corrected)}, {_p_value(difference.wilcoxon_corrected)}){star}"
    )


def _p_value(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"
