"""What a sweep can show: the effect of p, of the learning rate, or the scores of translators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from qknorm.data.textfiles import replacing
from qknorm.experiments.sweep import figures, rates, scores, summary
from qknorm.experiments.sweep.about import About
from qknorm.experiments.sweep.answer import Answer, Picture, page
from qknorm.experiments.sweep.results import RunResult, write_results
from qknorm.tasks.table import TASKS


class View(NamedTuple):
    answer: Callable[[Sequence[RunResult]], Answer]
    draw: Callable[[Sequence[RunResult], Path], list[Picture]]


VIEWS = {
    "p": View(summary.answer, figures.draw),
    "rates": View(rates.answer, rates.draw),
    "scores": View(scores.answer, lambda _results, _folder: []),
}


def view_of(about: About, results: Sequence[RunResult]) -> View:
    """What the recipe asks for, or else what its task is about."""
    return VIEWS[about.shows or ("p" if TASKS[results[0].task].is_cross_validated else "scores")]


def summarise(about: About, results: Sequence[RunResult], folder: Path) -> Answer:
    """Write results.csv, results.json, summary.md and the figures of a sweep; returns what it says."""
    view = view_of(about, results)
    answer = view.answer(results)
    told = {"paragraph": " ".join(answer.sentences)} if answer.sentences else {}
    write_results(results, about.model_dump(exclude_defaults=True) | answer.numbers | told, folder)
    with replacing(folder / "summary.md") as file:
        file.write(page(about, answer).encode())
    view.draw(results, folder / "figures")
    return answer
