"""Who is compared with whom by their translations: the same in tables, on the screen and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qknorm.errors import InputError
from qknorm.evaluation import wording
from qknorm.evaluation.significance import Comparison, standings
from qknorm.evaluation.systems import lines_of_test
from qknorm.experiments.cells import check_same_text, text_of
from qknorm.experiments.experiment import PLAN, Experiment, is_sweep
from qknorm.experiments.results import CorpusRows, contests_of, load_outcomes
from qknorm.metrics.table import is_too_short_for_bleu
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS


@dataclass(frozen=True)
class Compared:
    """Systems on the same sentences, each with the first of them."""

    rows: list[Comparison] = field(default_factory=list)
    is_too_short: bool = False
    """BLEU says nothing about its lines."""
    obstacle: str = ""
    """Why there is nothing to compare, or no rows at all."""

    @property
    def sentences(self) -> list[str]:
        """Which systems differ from the first by more than chance, as far as BLEU can tell."""
        if self.is_too_short:
            return [wording.TOO_SHORT]
        if self.obstacle:
            return [f"Nothing is compared: {self.obstacle}."]
        return wording.verdicts(self.rows) if self.rows else []


def compared(
    systems: Mapping[str, Sequence[Sequence[str]]], references: Sequence[str], as_tokens: bool = False
) -> Compared:
    """The translations of each seed of each system."""
    return Compared(standings(systems, references, as_tokens), is_too_short_for_bleu(references, as_tokens))


def compared_runs(systems: Mapping[str, Sequence[Path]], first: str, as_tokens: bool = False) -> Compared:
    """The finished runs of each system; without any of the first, the others stand by themselves."""
    runs = [run for seeds in systems.values() for run in seeds]
    if not runs:
        return Compared(obstacle="no run is done yet")
    if obstacle := _obstacle(runs, as_tokens):
        return Compared(obstacle=obstacle)
    ordered = sorted(systems, key=lambda name: name != first)
    lines = {name: [lines_of_test(run, "hypotheses", as_tokens) for run in systems[name]] for name in ordered}
    found = compared(lines, lines_of_test(runs[0], "references", as_tokens), as_tokens)
    if first in systems:
        return found
    missing = f"no run of {first}, which the others are compared with, is done"
    return replace(found, rows=[_alone(row) for row in found.rows], obstacle=missing)


def compared_contest(experiment: Experiment, contest: CorpusRows) -> Compared:
    """The rows of an experiment on one corpus, as far as their runs are done; none of a task without a test set."""
    if not TASKS[experiment.task].is_tested:
        return Compared()
    labels = {entrant.name: entrant.label for entrant in contest.entrants}
    first = experiment.table.first if experiment.table else next(iter(labels))
    runs = {label: [run.folder for run in done] for label, done in contest.done.items()}
    return compared_runs(runs, labels[first], experiment.as_tokens(contest.corpus))


def as_systems(argument: str) -> list[str]:
    """An argument of `qknorm compare`; for the folder of a sweep, its systems with their finished seeds."""
    folder = Path(argument)
    if not is_sweep(folder):
        return [argument]
    experiment = Experiment.of_file(folder / PLAN)
    if TASKS[experiment.task].is_cross_validated:
        raise InputError(f"{folder} holds language models, which have no BLEU; they are compared in its summary.md")
    contests = contests_of(experiment, load_outcomes(experiment, folder))
    systems = [
        f"{', '.join(filter(None, [label, contest.title]))}={','.join(str(run.folder) for run in runs)}"
        for contest in contests
        for label, runs in contest.done.items()
    ]
    if not systems:
        raise InputError(f"no run of {folder} is done yet; go on with: qknorm sweep")
    return systems


def _obstacle(runs: Sequence[Path], as_tokens: bool) -> str:
    """Why runs cannot be compared; empty where they can. An InputError where they should be comparable."""
    files = [Run(run).test_set().references for run in runs]
    if not all(file.is_file() for file in files):
        return "these runs were tested on several language pairs; compare two with: qknorm compare"
    check_same_text(runs)
    expected = lines_of_test(runs[0], "references", as_tokens)
    other = next((run for run in runs if lines_of_test(run, "references", as_tokens) != expected), None)
    if other is None:
        return ""
    if text_of(Run(runs[0])) != text_of(Run(other)):
        return "these runs were not tested on the same sentences; compare those that were with: qknorm compare"
    raise InputError(
        f"{files[0]} and {Run(other).test_set().references} differ, so their runs cannot be compared: the test set was "
        "changed in between; move the run with the wrong one away, and call this again"
    )


def _alone(row: Comparison) -> Comparison:
    """A system by itself: what it is to be compared with has not been run."""
    return replace(row, difference=None, difference_low=None, difference_high=None, p_value=None, p_is_bound=False)
