"""What a sweep says about p, in words and tables, generated from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from qknorm.experiments.experiment import Experiment
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Answer
from qknorm.experiments.paired import Difference
from qknorm.experiments.results import RunResult, by_condition
from qknorm.experiments.views.p_figures import draw
from qknorm.experiments.views.p_statistics import MEASURES, REFERENCE, Arm, SharpPair, Statistics, analyse

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
_DIGITS = dict.fromkeys(MEASURES, ".4f") | {"iterations_to_target": ".0f"}
_COMPARED = {
    "best_val_loss": "the best loss",
    "final_val_loss": "the final loss",
    "area": "the area under the curve",
}


def answer(_experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    """The claims of the second paper, under each learning rate or whatever else varies by itself."""
    verdicts = list[str]()
    whole = Answer(verdict=verdicts, draw=partial(draw, results))
    for condition, runs in by_condition(results).items():
        statistics = analyse(runs)
        if statistics is not None:
            opening = [f"With {condition}:"] if condition else []
            whole.sentences.extend([*opening, *sentences(statistics)])
            verdicts.extend([" ".join([*opening, sentence]) for sentence in verdict(statistics)])
            whole.tables.extend(tables(statistics, condition))
            whole.records.extend({"condition": condition} | record for record in records(statistics))
    return whole


def sentences(statistics: Statistics) -> list[str]:
    """What the sweep says about the claims of the second paper, and by which tests where these are not both."""
    about = [sentence for start in statistics.starts for sentence in _about(start, statistics)]
    return [*about, *verdict(statistics), *_about_time(statistics)]


def tables(statistics: Statistics, condition: str = "") -> list[Table]:
    """Per start, the estimates of every measure, and the differences to p = 2."""
    ending, columns = f", {condition}" if condition else "", ["", *_HEADINGS.values()]
    found = []
    for start in statistics.starts:
        arms = statistics.of(start)
        estimates = [
            [arm.label, *_by_measure(format, arm.measures), f"{arm.time_ratio:.2f}" if arm.time_ratio else ""]
            for arm in arms
        ]
        compared = {arm.label: arm.differences for arm in arms if arm.differences}
        note = f"Mean and 95 % interval; the target is a loss of {statistics.target_loss:.2f}."
        found.append(Table(_START[start] + ending, note, [*columns, "time / p = 2"], estimates))
        found.append(_of_differences("", "Difference to p = 2", compared, statistics))
    if statistics.started_as_sharp:
        title = "A larger p, and another that was started as sharp" + ending
        pairs = {f"p = {pair.q:g} less {_as_sharp(pair)}": pair.differences for pair in statistics.started_as_sharp}
        found.append(_of_differences(title, "Difference", pairs, statistics))
    return found


def _of_differences(title: str, what: str, by_label: dict[str, dict[str, Difference]], statistics: Statistics) -> Table:
    """How they were found, and which of them are marked, stands above them."""
    few = any(not found.wilcoxon_can_tell for differences in by_label.values() for found in differences.values())
    unit = statistics.unit
    finds = f"the t test alone finds, as there are too few {unit}s for Wilcoxon's" if few else "both find"
    note = (
        f"{what}, paired by {unit}, with its 95 % interval; Holm-corrected p-values of the t test and of Wilcoxon's; * "
        f"marks what {finds} below 0.05."
    )
    rows = [[label, *_by_measure(_tested, differences)] for label, differences in by_label.items()]
    return Table(title, note, ["", *_HEADINGS.values()], rows)


def _by_measure(told: Callable[[Any, str], str], values: dict[str, Any]) -> Iterator[str]:
    return (told(values[name], _DIGITS[name]) for name in MEASURES)


def records(statistics: Statistics) -> Iterator[dict[str, Any]]:
    """The same, a row for each measure, not rounded."""
    for arm in statistics.arms:
        for name in MEASURES:
            found = asdict(arm.measures[name]) | _record(arm.differences.get(name))
            named = {"start": arm.start, "system": arm.label, "compared_with": REFERENCE, "measure": name}
            yield named | found | {"time_ratio": arm.time_ratio}
    for pair in statistics.started_as_sharp:
        named = {"start": "same", "system": f"p = {pair.q:g}", "compared_with": _as_sharp(pair)}
        for name in MEASURES:
            yield named | {"measure": name} | _record(pair.differences[name])


def _record(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {}
    found = asdict(difference)
    estimate = {f"difference_{name}": value for name, value in found.pop("estimate").items()}
    judged = "both" if difference.wilcoxon_can_tell else "t_test"
    return {**estimate, **found, "judged_by": judged, "significant": difference.is_significant}


def _as_sharp(pair: SharpPair) -> str:
    return f"p = {pair.other:g}, as sharp as p = {pair.q:g}"


def _about(start: str, statistics: Statistics) -> Iterator[str]:
    arms = statistics.of(start)
    normalised = [arm for arm in arms if arm.p is not None]
    best = min(normalised, key=lambda arm: arm.measures["best_val_loss"].mean)
    reference = next((arm for arm in arms if arm.label == REFERENCE), None)
    opening = f"{_START[start]}, the best validation loss was lowest at {best.label}"
    opening += f" ({best.measures['best_val_loss']:.4f}"
    if reference is None:
        yield opening + "); p = 2 was not run, so nothing is compared with it."
        return
    count = reference.measures["best_val_loss"].count
    counted = f"{count} {statistics.unit}{'s' * (count != 1)}"
    if best is not reference:
        opening += f"; p = 2: {reference.measures['best_val_loss']:.4f}"
    yield opening + ")."
    if not any(arm.differences for arm in arms):
        yield f"With {counted} no difference could be significant."
        return
    yield from _about_tests(arms, counted)
    compared = [arm for arm in normalised if arm.differences]
    yield from (_compared(compared, name, what, counted) for name, what in _COMPARED.items())
    beside = [arm for arm in arms if arm.p is None and arm.differences]
    if beside:
        yield f"Against p = 2 in the best loss, {'; '.join(map(_against_reference, beside))}."


def _about_tests(arms: Sequence[Arm], counted: str) -> Iterator[str]:
    few = [found for arm in arms for found in arm.differences.values() if not found.wilcoxon_can_tell]
    if few:
        compared = f"{few[0].comparisons} comparison{'s' * (few[0].comparisons != 1)}"
        yield (
            f"With {counted} and {compared} Wilcoxon's test cannot fall below 0.05 after correction, so the paired t "
            "test alone decides; it takes differences for normally distributed."
        )


def _against_reference(arm: Arm) -> str:
    difference = arm.differences["best_val_loss"]
    what = f"was {_direction(difference, '.4f')}" if difference.is_significant else "made no significant difference"
    return f"{arm.label} {what}"


def _compared(arms: Sequence[Arm], name: str, what: str, counted: str) -> str:
    different = [arm for arm in arms if arm.differences[name].is_significant]
    if not different:
        return f"In {what} there is no significant difference between p = 2 and any other p ({counted})."
    listed = ", ".join(f"{arm.label} {_direction(arm.differences[name], _DIGITS[name])}" for arm in different)
    others = [arm.label for arm in arms if arm not in different]
    rest = f"; no significant difference for {', '.join(others)}" if others else ""
    return f"In {what}, significantly different from p = 2: {listed}{rest}."


def verdict(statistics: Statistics) -> list[str]:
    """The question: is p > 2 better, is it still when it has no head start, and when p = 2 has the same one?"""
    return [*_about_starts(statistics), *(_about_pair(pair, statistics) for pair in statistics.started_as_sharp)]


def _about_pair(pair: SharpPair, statistics: Statistics) -> str:
    """Whether the gain of p = q is that of a larger g, which the other p was given here."""
    difference = pair.differences["best_val_loss"]
    test = "paired t test and Wilcoxon's, the larger" if difference.wilcoxon_can_tell else "paired t test,"
    count = f"{difference.estimate.count} {statistics.unit}s"
    p_value = f"{'corrected ' * (difference.comparisons > 1)}p {_p_value(difference.p_value, '= ')}"
    found = f"{difference.estimate:+.4f} in the best loss ({count}, {test} {p_value})"
    concluded = _concluded(pair, _gain(pair, statistics))
    return f"p = {pair.q:g} and p = {pair.other:g} started as sharp differ by {found}: {concluded}."


def _gain(pair: SharpPair, statistics: Statistics) -> bool | None:
    """Whether p = q is better than p = 2 under the same start; None where that was not compared, or with another p."""
    arms = [arm for arm in statistics.of("same") if arm.p == pair.q and arm.differences and pair.other == 2]
    return next((_is_better(arm) for arm in arms), None)


def _concluded(pair: SharpPair, gain: bool | None) -> str:
    larger, other, difference = f"p = {pair.q:g}", f"p = {pair.other:g}", pair.differences["best_val_loss"]
    if not difference.is_significant:
        told, so = "they cannot be told apart", f", so the gain of {larger} over {other} may be that of a larger g"
    elif difference.estimate.mean < 0:
        told, so = f"{larger} is better even so", f", and its gain over {other} is more than that of a larger g"
    else:
        told, so = f"{other} is better then", f", and a larger g alone gives more than the gain of {larger}"
    none = f", and {larger} had no significant gain over {other}"
    return told + ("" if gain is None else so if gain else none)


def _is_better(arm: Arm) -> bool:
    """Than p = 2, in the best loss."""
    difference = arm.differences["best_val_loss"]
    return difference.is_significant and difference.estimate.mean < 0


def _about_starts(statistics: Statistics) -> list[str]:
    """Whether p > 2 is better, where both starts were tried and there are folds or seeds enough."""
    larger = [arm for arm in statistics.arms if arm.p is not None and arm.p > 2 and arm.differences and _is_better(arm)]
    if set(statistics.starts) != {"same", "comparable"} or not statistics.can_tell:
        return []
    same, comparable = (
        ", ".join(arm.label for arm in larger if arm.start == start) for start in ("same", "comparable")
    )
    if same and comparable:
        return [f"So p > 2 is better under both starts ({same}; {comparable}): not only a head start."]
    if same:
        return [
            "So the gain of p > 2 is there under the same start and gone under the comparable one: it is what a "
            "head start of sharper attention would give."
        ]
    if comparable:
        return [f"So {comparable} is better than p = 2 only when all p start equally sharp."]
    return ["So the claim that p > 2 ends with a lower loss is not confirmed at this size, under either start."]


def _about_time(statistics: Statistics) -> list[str]:
    of_p = [arm.time_ratio for arm in statistics.arms if arm.p is not None and arm.time_ratio is not None]
    if not of_p:
        return []
    beside = {arm.label: arm.time_ratio for arm in statistics.arms if arm.p is None and arm.time_ratio is not None}
    others = "".join(f"; with {label} {ratio:.2f}" for label, ratio in beside.items())
    return [f"Training took between {min(of_p):.2f} and {max(of_p):.2f} of the time of p = 2{others}."]


def _direction(difference: Difference, digits: str) -> str:
    mean = difference.estimate.mean
    return f"{'lower' if mean < 0 else 'higher'} by {abs(mean):{digits}}"


def _tested(difference: Difference, digits: str) -> str:
    star = " *" if difference.is_significant else ""
    p_values = f"{_p_value(difference.t_test_corrected)}, {_p_value(difference.wilcoxon_corrected)}"
    return f"{difference.estimate:+{digits}} ({p_values}){star}"


def _p_value(value: float, equals: str = "") -> str:
    return f"{equals}{value:.3f}" if value >= 0.001 else "< 0.001"
