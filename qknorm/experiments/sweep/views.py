"""What a sweep can show: the effect of p, of the learning rate, or the scores of translators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from qknorm.experiments.citations import bibliography
from qknorm.experiments.formats import as_csv, write_texts
from qknorm.experiments.sweep import figures, rates, scores, summary
from qknorm.experiments.sweep.about import About
from qknorm.experiments.sweep.answer import Answer, Picture, as_latex, page
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
    """Write the results, the summary in every form and the figures of a sweep; returns what it says."""
    view = view_of(about, results)
    answer = view.answer(results)
    told = {"paragraph": " ".join(answer.sentences)} if answer.sentences else {}
    write_results(results, about.model_dump(exclude_defaults=True) | answer.numbers | told, folder)
    path = folder / "summary.md"
    in_every_form = {path: page(about, answer)}
    if answer.tables:
        in_every_form[path.with_suffix(".csv")] = as_csv(answer.records)
        in_every_form[path.with_suffix(".tex")] = as_latex(about, answer.tables)
    if about.paper is not None:
        in_every_form[path.with_name("references.bib")] = bibliography()
    write_texts(in_every_form)
    view.draw(results, folder / "figures")
    return answer
