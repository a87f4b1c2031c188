"""What a sweep says about p, in words and tables, generated from its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from qknorm.experiments.sweep.answer import Answer, Table
from qknorm.experiments.sweep.results import RunResult, by_condition
from qknorm.experiments.sweep.statistics import (
    MEASURES,
    REFERENCE,
    Arm,
    Difference,
    Estimate,
    SharpPair,
    Statistics,
    analyse,
)

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
            whole.records.extend({"condition": condition} | record for record in records(statistics))
            whole.numbers.setdefault("statistics", []).append({"condition": condition} | statistics.as_dict())
    return whole


def sentences(statistics: Statistics) -> list[str]:
    """What the sweep says about the claims of the second paper, and by which tests where these are not both."""
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
        tested = [difference for arm in arms for difference in arm.differences.values()]
        note = f"Difference to p = 2, {_how_tested(tested, statistics.unit)}"
        by_start.append(Table("", note, ["", *headings], differences))
    if pairs := statistics.started_as_sharp:
        note = (
            f"Difference, {_how_tested([one for pair in pairs for one in pair.differences.values()], statistics.unit)}"
        )
        title = "A larger p, and another that was started as sharp" + (f", {condition}" if condition else "")
        rows = [
            [
                f"p = {pair.q:g} less {_as_sharp(pair)}",
                *(_tested(pair.differences[name], _digits(name)) for name in MEASURES),
            ]
            for pair in pairs
        ]
        by_start.append(Table(title, note, ["", *headings], rows))
    return by_start


def records(statistics: Statistics) -> list[dict[str, Any]]:
    """The same, a row for each measure, not rounded."""
    rows: list[dict[str, Any]] = []
    for arm in statistics.arms:
        for name in MEASURES:
            found = asdict(arm.measures[name]) | _record(arm.differences.get(name))
            rows.append({"start": arm.start, "system": arm.label, "compared_with": REFERENCE, "measure": name} | found)
    for pair in statistics.started_as_sharp:
        named = {"start": "same", "system": f"p = {pair.q:g}", "compared_with": _as_sharp(pair)}
        rows += [named | {"measure": name} | _record(pair.differences[name]) for name in MEASURES]
    return rows


def _record(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {}
    found = difference.as_dict()
    estimate = found.pop("estimate")
    return {f"difference_{name}" if name in estimate else name: value for name, value in (estimate | found).items()}


def _as_sharp(pair: SharpPair) -> str:
    return f"p = {pair.other:g}, as sharp as p = {pair.q:g}"


def _how_tested(differences: Sequence[Difference], unit: str) -> str:
    """How differences were found, and which of them are marked."""
    few = [difference for difference in differences if not difference.wilcoxon_can_tell]
    finds = "both find" if not few else f"the t test alone finds, as there are too few {unit}s for Wilcoxon's"
    return (
        f"paired by {unit}, with its 95 % interval; Holm-corrected p-values of the t test and of Wilcoxon's; * marks "
        f"what {finds} below 0.05."
    )


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
    sentences += _about_tests(arms, counted)
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


def _about_tests(arms: Sequence[Arm], counted: str) -> list[str]:
    few = [one for arm in arms for one in arm.differences.values() if not one.wilcoxon_can_tell]
    if not few:
        return []
    compared = f"{few[0].comparisons} comparison{'s' * (few[0].comparisons != 1)}"
    return [
        f"With {counted} and {compared} Wilcoxon's test cannot fall below 0.05 after correction, so the paired t test "
        "alone decides; it takes differences for normally distributed."
    ]


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
    """The question: is p > 2 better, is it still when it has no head start, and when p = 2 has the same one?"""
    return [*_about_starts(statistics), *(_about_pair(pair, statistics) for pair in statistics.started_as_sharp)]


def _about_pair(pair: SharpPair, statistics: Statistics) -> str:
    """Whether the gain of p = q is that of a larger g, which the other p was given here."""
    one, other, difference = f"p = {pair.q:g}", f"p = {pair.other:g}", pair.differences["best_val_loss"]
    test = "paired t test and Wilcoxon's, the larger" if difference.wilcoxon_can_tell else "paired t test,"
    count = f"{difference.estimate.count} {statistics.unit}s"
    p_value = f"{'corrected ' * (difference.comparisons > 1)}p {_p_value(difference.p_value, '= ')}"
    found = f"{_signed(difference.estimate, 4)} in the best loss ({count}, {test} {p_value})"
    return f"{one} and {other} started as sharp differ by {found}: {_concluded(pair, _gain(pair, statistics))}."


def _gain(pair: SharpPair, statistics: Statistics) -> bool | None:
    """Whether p = q is better than p = 2 under the same start; None where that was not compared, or with another p."""
    arms = [arm for arm in statistics.of("same") if arm.p == pair.q and arm.differences and pair.other == 2]
    return next((_is_better(arm) for arm in arms), None)


def _concluded(pair: SharpPair, gain: bool | None) -> str:
    one, other, difference = f"p = {pair.q:g}", f"p = {pair.other:g}", pair.differences["best_val_loss"]
    if not difference.is_significant:
        told, so = "they cannot be told apart", f", so the gain of {one} over {other} may be that of a larger g"
    elif difference.estimate.mean < 0:
        told, so = f"{one} is better even so", f", and its gain over {other} is more than that of a larger g"
    else:
        told, so = f"{other} is better then", f", and a larger g alone gives more than the gain of {one}"
    none = f", and {one} had no significant gain over {other}"
    return told + ("" if gain is None else so if gain else none)


def _is_better(arm: Arm) -> bool:
    """Than p = 2, in the best loss."""
    difference = arm.differences["best_val_loss"]
    return difference.is_significant and difference.estimate.mean < 0


def _about_starts(statistics: Statistics) -> list[str]:
    better = {
        start: [
            arm.label
            for arm in statistics.of(start)
            if arm.p is not None and arm.p > 2 and arm.differences and _is_better(arm)
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
    """Whether there are folds or seeds enough: two, of which the t test can say something."""
    return any(arm.differences for arm in arms)


def _about_time(statistics: Statistics) -> list[str]:
    of_p = [arm.time_ratio for arm in statistics.arms if arm.p is not None and arm.time_ratio is not None]
    if not of_p:
        return []
    beside = {arm.label: arm.time_ratio for arm in statistics.arms if arm.p is None and arm.time_ratio is not None}
    others = "".join(f"; with {label} {ratio:.2f}" for label, ratio in beside.items())
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
    p_values = f"{_p_value(difference.t_test_corrected)}, {_p_value(difference.wilcoxon_corrected)}"
    return f"{_signed(difference.estimate, digits)} ({p_values}){star}"


def _signed(value: Estimate, digits: int) -> str:
    return f"{value.mean:+.{digits}f} [{value.low:+.{digits}f}, {value.high:+.{digits}f}]"


def _p_value(value: float, equals: str = "") -> str:
    return f"{equals}{value:.3f}" if value >= 0.001 else "< 0.001"
