"""What an experiment can show. A new view is a file here, and its line in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qknorm.errors import InputError
from qknorm.experiments import tuning
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.page import Answer, Picture, write
from qknorm.experiments.results import RunResult, contests_of, load_results
from qknorm.experiments.views import attention, data, p, rates, scores
from qknorm.tasks.table import TASKS


@dataclass(frozen=True)
class View:
    answer: Callable[[Experiment, Sequence[RunResult]], Answer]
    is_of_losses: bool = False
    """Whether it is made from curves of the loss, which only tasks that are cross-validated leave behind."""
    is_of_tables: bool = False
    """Whether it needs rows that are listed."""


VIEWS = {
    "p": View(p.answer, is_of_losses=True),
    "rates": View(rates.answer, is_of_losses=True),
    "scores": View(scores.answer),
    "data": View(data.answer, is_of_tables=True),
    "attention": View(attention.answer, is_of_tables=True),
}


def view_of(experiment: Experiment, origin: str = "") -> View:
    """What the recipe asks for, or else what its task is about; an InputError if its task has nothing to show there."""
    task, shows = TASKS[experiment.task], experiment.about.shows
    where = f"{origin}: " if origin else ""
    if shows is not None and shows not in VIEWS:
        raise InputError(f"{where}shows must be one of {', '.join(VIEWS)}, not {shows!r}")
    view = VIEWS[shows or ("p" if task.is_cross_validated else "scores")]
    if view.is_of_losses and not task.is_cross_validated:
        raise InputError(
            f"{where}shows: {shows} is about losses of language models, which task: {experiment.task} does not have; "
            "use shows: scores, or leave it out"
        )
    if view.is_of_tables and experiment.table is None:
        raise InputError(f"{where}shows: {shows} is about the rows of a table; use shows: scores, or leave it out")
    return view


def summarise(experiment: Experiment, folder: Path) -> Answer:
    """Write the results, the page in every form and the figures of an experiment; returns what it says."""
    view, results = view_of(experiment), load_results(experiment, folder)
    answer = replace(view.answer(experiment, results), caveats=tuning.rate_caveats(experiment, results))
    pictures = answer.draw(folder / "figures") + _rates(experiment, results, folder / "figures")
    write(experiment, results, answer, pictures, folder)
    return answer


def _rates(experiment: Experiment, results: Sequence[RunResult], folder: Path) -> list[Picture]:
    """Tables of a corpus share runs, but each has figures of its own."""
    drawn = [
        tuning.draw(contest, folder / contest.corpus / f"{experiment.name}_learning-rates")
        for contest in contests_of(experiment, results)
    ]
    return [Picture(path, "", "Dev scores of each row by its learning rate") for path in drawn if path is not None]
