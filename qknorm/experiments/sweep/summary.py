"""A sweep in words and tables, generated from its numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from qknorm.data.textfiles import replacing
from qknorm.experiments.sweep.results import RunResult, write_results
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


@dataclass(frozen=True)
class Table:
    """Numbers as text; without a title it belongs to the table before it."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def summarise(results: Sequence[RunResult], folder: Path) -> str:
    """Write results.csv, results.json and summary.md of a sweep; returns what is to be told of it in short.

    Of language models a paragraph about p, nothing where p is not varied; of translators a table.
    """
    if results[0].task == "translation":
        text = whole = scores_table(results)
        write_results(results, {}, folder)
    else:
        statistics = analyse(results)
        if statistics is None:
            write_results(results, {}, folder)
            return ""
        text = paragraph(statistics)
        whole = f"{text}\n\n{as_markdown(tables(statistics))}"
        write_results(results, {"statistics": statistics.as_dict(), "paragraph": text}, folder)
    with replacing(folder / "summary.md") as file:
        file.write(whole.encode())
    return text


def scores_table(results: Sequence[RunResult]) -> str:
    """Markdown: the mean scores of translators, the best first; runs that differ in their seed alone are one row."""
    groups = defaultdict[str, list[dict[str, float]]](list)
    for result in results:
        settings = ", ".join(f"{key} {value}" for key, value in result.settings.items() if key != "seed")
        if result.status == "done":
            groups[settings].append(result.measured)
    means = {
        settings: {name: fmean(run[name] for run in runs) for name in ("bleu", "chrf", "best_dev_bleu")}
        for settings, runs in groups.items()
    }
    rows = [
        f"| {settings} | {' | '.join(f'{value:.2f}' for value in mean.values())} | {len(groups[settings])} |"
        for settings, mean in sorted(means.items(), key=lambda group: -group[1]["bleu"])
    ]
    return "\n".join(["| | test BLEU | chrF | best dev BLEU | runs |", "| --- | --- | --- | --- | --- |", *rows])


def paragraph(statistics: Statistics) -> str:
    return " ".join(sentences(statistics))


def sentences(statistics: Statistics) -> list[str]:
    """What the sweep says about the claims of the second paper. Significant means: both tests, after Holm."""
    about = [sentence for start in statistics.starts for sentence in _about(start, statistics)]
    return [*about, *verdict(statistics), *_about_time(statistics)]


def tables(statistics: Statistics) -> list[Table]:
    """Per start, the estimates of every measure, and the differences to p = 2."""
    found = []
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
        found.append(Table(_START.get(start, start), note, ["", *headings, "time / p = 2"], estimates))
        note = "Difference to p = 2, paired by fold; Holm-corrected p-values of the t test and of Wilcoxon's."
        found.append(Table("", note, ["", *headings], differences))
    return found


def as_markdown(tables: Sequence[Table]) -> str:
    parts = []
    for table in tables:
        parts += [f"### {table.title}\n"] * bool(table.title)
        parts.append(f"{table.note}\n")
        rule = ["---"] * len(table.columns)
        parts += [f"| {' | '.join(cells)} |" for cells in (table.columns, rule, *table.rows)]
        parts.append("")
    return "\n".join(parts)


def _about(start: str, statistics: Statistics) -> list[str]:
    arms = statistics.of(start)
    normalised = [arm for arm in arms if arm.p is not None]
    best = min(normalised, key=lambda arm: arm.measures["best_val_loss"].mean)
    reference = next((arm for arm in arms if arm.p == REFERENCE), None)
    opening = f"{_START.get(start, start)}, the best validation loss was lowest at {best.label}"
    opening += f" ({_interval(best.measures['best_val_loss'], 4)}"
    if reference is None:
        return [opening + "); p = 2 was not run, so nothing is compared with it."]
    folds = reference.measures["best_val_loss"].count
    if best is not reference:
        opening += f"; p = 2: {_interval(reference.measures['best_val_loss'], 4)}"
    sentences = [opening + ")."]
    compared = [arm for arm in normalised if arm.differences]
    if not _can_tell(arms):
        return [*sentences, f"With {folds} fold{'s' * (folds != 1)} no difference could be significant."]
    for name, what in (
        ("best_val_loss", "the best loss"),
        ("final_val_loss", "the final loss"),
        ("area", "the area under the curve"),
    ):
        sentences.append(_compared(compared, name, what, folds))
    plain = next((arm for arm in arms if arm.p is None), None)
    if plain is not None and plain.differences:
        difference = plain.differences["best_val_loss"]
        what = "was " + _direction(difference, 4) if difference.is_significant else "made no significant difference"
        sentences.append(f"No normalisation at all {what} against p = 2 in the best loss.")
    return sentences


def _compared(arms: Sequence[Arm], name: str, what: str, folds: int) -> str:
    different = [arm for arm in arms if arm.differences[name].is_significant]
    if not different:
        return f"In {what} there is no significant difference between p = 2 and any other p ({folds} folds)."
    shown = ", ".join(f"{arm.label} {_direction(arm.differences[name], _digits(name))}" for arm in different)
    others = [arm.label for arm in arms if arm not in different]
    rest = f"; no significant difference for {', '.join(others)}" if others else ""
    return f"In {what}, significantly different from p = 2: {shown}{rest}."


def verdict(statistics: Statistics) -> list[str]:
    """The question: is p > 2 better, and is it still when it has no head start?"""
    better = {
        start: [
            arm.label
            for arm in statistics.of(start)
            if arm.p is not None
            and arm.p > REFERENCE
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
    """Whether there are folds enough: with n of them Wilcoxon's test gives at least 2/2ⁿ, before correction."""
    return any(difference.can_be_significant for arm in arms for difference in arm.differences.values())


def _about_time(statistics: Statistics) -> list[str]:
    ratios = [arm.time_ratio for arm in statistics.arms if arm.time_ratio is not None and arm.p is not None]
    plain = next((arm.time_ratio for arm in statistics.arms if arm.p is None and arm.time_ratio is not None), None)
    if not ratios:
        return []
    sentence = f"Training took between {min(ratios):.2f} and {max(ratios):.2f} of the time of p = 2"
    return [sentence + (f", and {plain:.2f} without normalisation." if plain is not None else ".")]


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
    return (
        f"{difference.estimate.mean:+.{digits}f} "
        f"({_p_value(difference.t_test_corrected)}, {_p_value(difference.wilcoxon_corrected)}){star}"
    )


def _p_value(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"
