"""From the runs of an experiment to its numbers, which tables and reports show alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError
from qknorm.evaluation import wording
from qknorm.evaluation.significance import Comparison, standings
from qknorm.evaluation.systems import lines_of_test
from qknorm.experiments.cells import check_same_text
from qknorm.experiments.minutes import PLAN
from qknorm.experiments.papers.plan import Contest, Entrant, Experiment
from qknorm.metrics.table import is_too_short_for_bleu
from qknorm.runs.contents import TranslationResult
from qknorm.runs.recipe import load_recipe
from qknorm.runs.run import Run


@dataclass(frozen=True)
class Row:
    """A system on a corpus. Differences are to the reference system; None is what is not known or not run."""

    corpus: str
    system: str
    paper: float | None
    paper_difference: float | None = None
    ours: float | None = None
    ours_sd: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    """Holm-corrected, over the rows of a corpus."""
    p_is_bound: bool = False
    """p is at most this: the samples cannot say less."""
    ours_minus_paper: float | None = None
    """Only on the text of which the figure was published."""
    seeds: int = 0
    rate: float | None = None
    """The learning rate that was best on dev, where several were tried."""
    rates_tried: int = 0
    hours: float | None = None
    """Of training: see `hours_of`."""


@dataclass(frozen=True)
class Result:
    """What came out on one corpus, as far as its runs are done."""

    contest: Contest
    rows: list[Row]
    compared: list[Comparison]
    """The systems that were run, by their labels, the reference first if it is among them."""
    is_too_short: bool = False
    """BLEU says nothing about its lines."""

    @property
    def sentences(self) -> list[str]:
        """Which systems differ from the reference by more than chance, as far as BLEU can tell."""
        if self.is_too_short:
            return [wording.TOO_SHORT]
        verdicts = wording.verdicts(self.compared) if self.compared else []
        return verdicts or ["Nothing can be compared yet."]


def result_of(experiment: Experiment, contest: Contest, folder: Path) -> Result:
    """The numbers of one corpus."""
    references = _references(experiment, contest, folder)
    measured = _compared(experiment, contest, folder, references)
    by_label = {row.name: row for row in measured}
    rows = []
    for entrant in contest.entrants:
        row = _published(experiment, contest, entrant)
        if ours := by_label.get(row.system):
            row = _measured(row, ours, entrant, folder)
        rows.append(_held_against_paper(row) if experiment.table.is_comparable(contest.pair) else row)
    is_too_short = bool(measured) and is_too_short_for_bleu(references, experiment.as_tokens(contest))
    return Result(contest, rows, measured, is_too_short)


def hours_of(entrant: Entrant, folder: Path) -> float:
    """Of training, all seeds and all rates that were tried."""
    return sum(Run(run).result(TranslationResult).seconds for run in entrant.trained(folder)) / 3600


def planned_for(contest: Contest, folder: Path) -> str:
    """The numbers for which the minutes of a run stand; empty at sizes without minutes."""
    plan = folder / contest.corpus / PLAN
    if not plan.exists():
        return ""
    recipe = load_recipe(plan)
    model, training = recipe.model, recipe.training
    return (
        f"Planned for {contest.title}: {model.encoder_layers} + {model.decoder_layers} layers, d = {model.dim}, "
        f"{training.max_updates:,} updates of {training.budget:,} positions."
    )


def rate_caveats(experiment: Experiment, contest: Contest, folder: Path) -> list[str]:
    """Which rows were best at an end of the learning rates that they tried: what lies beyond it is not known."""
    sentences = []
    for end, beyond, extreme in (("lowest", "lower", min), ("highest", "higher", max)):
        there = [
            experiment.row(entrant).title
            for entrant in contest.entrants
            if _tried(entrant, folder) > 1
            and entrant.chosen(folder).rate == extreme(candidate.rate or 0.0 for candidate in entrant.candidates)
        ]
        if there:
            names = " and ".join(filter(None, [", ".join(there[:-1]), there[-1]]))
            were = "was" if len(there) == 1 else "were"
            sentences.append(f"{names} {were} best at the {end} rate tried, so a {beyond} one may be better still.")
    return sentences


def _tried(entrant: Entrant, folder: Path) -> int:
    """How many rates were trained with, where there are several."""
    several = entrant.candidates if len(entrant.candidates) > 1 else ()
    return sum(candidate.dev_score(folder) is not None for candidate in several)


def _references(experiment: Experiment, contest: Contest, folder: Path) -> list[str]:
    """Those of all runs that are done; none where none is."""
    runs = [run for entrant in contest.entrants for run in entrant.done(folder)]
    if not runs:
        return []
    _check_same_test(runs)
    return lines_of_test(runs[0], "references", experiment.as_tokens(contest))


def _compared(experiment: Experiment, contest: Contest, folder: Path, references: Sequence[str]) -> list[Comparison]:
    """Every system of which runs are done by its label, compared with the reference if that is among them."""
    first = experiment.table.first
    entrants = sorted(contest.entrants, key=lambda entrant: entrant.row != first)
    runs = {experiment.row(entrant).title: done for entrant in entrants if (done := entrant.done(folder))}
    if not runs:
        return []
    as_tokens = experiment.as_tokens(contest)
    lines = {label: [lines_of_test(run, "hypotheses", as_tokens) for run in done] for label, done in runs.items()}
    rows = standings(lines, references, as_tokens)
    return rows if entrants[0].done(folder) else [_alone(row) for row in rows]


def _check_same_test(runs: Sequence[Path]) -> None:
    """All rows are scored against the same references, so those of every run must be these."""
    check_same_text(runs)
    files = [Run(run).test_set().references for run in runs]
    first = list(read_lines(files[0]))
    for file in files[1:]:
        if list(read_lines(file)) != first:
            raise InputError(
                f"{files[0]} and {file} differ, so their runs cannot be compared: the test set was changed in between; "
                "move the run with the wrong one away, and call this again"
            )


def _alone(row: Comparison) -> Comparison:
    """A system by itself: what it is to be compared with has not been run."""
    return replace(row, difference=None, difference_low=None, difference_high=None, p_value=None, p_is_bound=False)


def _published(experiment: Experiment, contest: Contest, entrant: Entrant) -> Row:
    table, own = experiment.table, experiment.row(entrant)
    paper = table.published(own, contest.pair)
    reference = next(table.published(row, contest.pair) for row in table.rows if row.name == table.first)
    row = Row(contest.title, own.title, paper)
    if paper is None or reference is None or own.name == table.first:
        return row
    return replace(row, paper_difference=round(paper - reference, 2))


def _measured(row: Row, ours: Comparison, entrant: Entrant, folder: Path) -> Row:
    tried = _tried(entrant, folder)
    return replace(
        row,
        ours=ours.bleu,
        ours_sd=ours.bleu_sd,
        difference=ours.difference,
        low=ours.difference_low,
        high=ours.difference_high,
        p_value=ours.p_value,
        p_is_bound=ours.p_is_bound,
        seeds=ours.seeds,
        rate=entrant.chosen(folder).rate if tried else None,
        rates_tried=tried,
        hours=hours_of(entrant, folder),
    )


def _held_against_paper(row: Row) -> Row:
    return row if row.ours is None or row.paper is None else replace(row, ours_minus_paper=row.ours - row.paper)
