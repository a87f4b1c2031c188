"""Test BLEU of each row, whether it differs from that of the reference, and what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from qknorm.evaluation import wording
from qknorm.evaluation.significance import Comparison
from qknorm.experiments.compare import Compared, compared_contest
from qknorm.experiments.corpus import pair_of
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.figures import COLOURS, save
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Answer, Picture
from qknorm.experiments.results import CorpusRows, Entrant, RunResult, contests_of
from qknorm.tasks.table import TASKS

_ROW_HEIGHT, _FRAME_HEIGHT = 0.32, 1.3  # inches


@dataclass(frozen=True)
class Row:
    """A system on a corpus. Differences are to the reference system; None is what is not known or not run."""

    corpus: str
    system: str
    paper: float | None = None
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
    """Of training, all seeds and all rates that were tried."""
    measured: dict[str, float] = field(default_factory=dict)
    """Whatever else its runs measured, means over those that are compared."""


def answer(experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    """Every row with its seeds against the reference, where all were tested on the same sentences."""
    contests = contests_of(experiment, results)
    found = [compared_contest(experiment, contest) for contest in contests]
    rows = [row for contest, among in zip(contests, found, strict=True) for row in rows_of(experiment, contest, among)]
    several = len(contests) > 1
    sentences = [
        sentence
        for contest, among in zip(contests, found, strict=True)
        for sentence in [*[f"On {contest.title}:"] * (several and bool(among.sentences)), *among.sentences]
    ]
    seeds = [row.seeds for among in found for row in among.rows]
    return Answer(
        sentences=sentences,
        tables=[_table(experiment, rows, [row.name for among in found for row in among.rows[:1]])],
        numbers={"comparisons": [asdict(row) for among in found for row in among.rows]},
        records=[_record(row) for row in rows],
        setting=_how_scored(experiment) if TASKS[experiment.task].is_tested else [],
        notes=[f"A 95 % interval is {wording.about_interval(min(seeds))}"] if seeds else [],
        draw=partial(_draw, experiment, contests, rows, found),
    )


def _how_scored(experiment: Experiment) -> list[str]:
    kinds = {experiment.as_tokens(corpus) for corpus in experiment.corpora}
    return [f"Test BLEU is {how_scored(as_tokens)}." for as_tokens in sorted(kinds)]


def how_scored(as_tokens: bool) -> str:
    return "that of Moses' tokens (multi-bleu)" if as_tokens else "SacreBLEU of the text"


def rows_of(experiment: Experiment, contest: CorpusRows, among: Compared) -> list[Row]:
    """The numbers of one corpus, those of rows that were not run among them."""
    by_label = {row.name: row for row in among.rows}
    return [_row(experiment, contest, entrant, by_label.get(entrant.label)) for entrant in contest.entrants]


def _row(experiment: Experiment, contest: CorpusRows, entrant: Entrant, ours: Comparison | None) -> Row:
    """With what its finished runs measured. Where only first seeds are compared, all of it is theirs."""
    row = _published(experiment, contest, entrant)
    done = entrant.done[: ours.seeds] if ours else entrant.done
    if not done:
        return row
    headings = TASKS[experiment.task].headings
    means = {
        name: fmean(run.measured[name] for run in done)
        for name in headings
        if all(name in run.measured for run in done)
    }
    if ours is not None:
        row = replace(row, ours_sd=ours.bleu_sd, difference=ours.difference)
        row = replace(row, low=ours.difference_low, high=ours.difference_high)
        row = replace(row, p_value=ours.p_value, p_is_bound=ours.p_is_bound)
    score = ours.bleu if ours else means.get(next(iter(headings)))
    of_same_text = experiment.table is not None and experiment.table.is_comparable(pair_of(contest.corpus))
    return replace(
        row,
        ours=score,
        ours_minus_paper=None if score is None or row.paper is None or not of_same_text else score - row.paper,
        measured=means,
        seeds=len(done),
        rate=entrant.chosen.rate if entrant.rates_tried else None,
        rates_tried=entrant.rates_tried,
        hours=entrant.hours,
    )


def _published(experiment: Experiment, contest: CorpusRows, entrant: Entrant) -> Row:
    row, table, pair = Row(contest.title, entrant.label), experiment.table, pair_of(contest.corpus)
    if table is None or (paper := table.published(entrant.name, pair)) is None:
        return row
    reference = None if entrant.name == table.first else table.published(table.first, pair)
    return replace(row, paper=paper, paper_difference=None if reference is None else round(paper - reference, 2))


def _record(row: Row) -> dict[str, Any]:
    """A line of the CSV, not rounded."""
    record = asdict(row)
    measured: dict[str, Any] = record.pop("measured")
    return {**record, **measured}


def _table(experiment: Experiment, rows: Sequence[Row], firsts: Sequence[str]) -> Table:
    """Columns in which something stands: an own table may have nothing published, and tries one rate as a rule."""
    headings = TASKS[experiment.task].headings
    pairs = experiment.table.pairs if experiment.table else ()
    paper = f"paper ({pairs[0].replace('-', '→')})" if len(pairs) == 1 else "paper"
    names = (paper, "our diff.", "ours") if experiment.table else (paper, "difference", next(iter(headings.values())))
    others = {} if experiment.table else dict(list(headings.items())[1:])
    cells = [_cells(row, *names, others) for row in rows]
    columns = [name for name in cells[0] if name == "system" or any(line[name] for line in cells)]
    note = f"Differences are to {firsts[0]}." if any(row.difference is not None for row in rows) else ""
    lines = [[line[name] for name in columns] for line in cells]
    return Table("", note, columns, lines, text_columns=columns.index("system") + 1)


def _cells(row: Row, paper: str, difference: str, ours: str, others: Mapping[str, str]) -> dict[str, str]:
    deviation = "" if row.ours_sd is None else f" ± {row.ours_sd:.2f}"
    return {
        "corpus": row.corpus,
        "system": row.system,
        paper: number(row.paper),
        "its diff.": number(row.paper_difference, signed=True),
        ours: "not run" if row.ours is None else f"{row.ours:.2f}{deviation}",
        **{heading: number(row.measured.get(name)) for name, heading in others.items()},
        difference: number(row.difference, signed=True),
        "95 %": wording.interval(row.low, row.high, signed=True),
        "p": wording.p_value(row.p_value, row.p_is_bound),
        "ours − paper": number(row.ours_minus_paper, signed=True),
        "seeds": str(row.seeds or ""),
        "rate": rate_of(row),
        "hours": number(row.hours),
    }


def number(value: float | None, signed: bool = False) -> str:
    """In two digits; nothing where it is not known."""
    return "" if value is None else f"{value:+.2f}" if signed else f"{value:.2f}"


def rate_of(row: Row) -> str:
    return "" if row.rate is None else f"{row.rate:g} (of {row.rates_tried})"


def _draw(
    experiment: Experiment, contests: Sequence[CorpusRows], rows: Sequence[Row], found: Sequence[Compared], folder: Path
) -> list[Picture]:
    """How far each row of a corpus is from its reference."""
    pictures = []
    for contest, among in zip(contests, found, strict=True):
        compared = [row for row in rows if row.corpus == contest.title and row.difference is not None]
        if compared:
            file = folder / contest.corpus / f"{experiment.name}_differences"
            drawn = draw_rows(compared, among.rows[0].name, contest.title, file)
            is_published = any(row.paper_difference is not None for row in compared)
            caption = "Each row less the reference" + (", ours and the paper's" if is_published else "")
            pictures.append(Picture(drawn, "", caption))
    return pictures


def draw_rows(rows: Sequence[Row], reference: str, title: str, file: Path) -> Path:
    """A line for each row, ours with its 95 % interval, and what was published."""
    return save(partial(_figure, rows, reference, title), file)


def _figure(rows: Sequence[Row], reference: str, title: str) -> Figure:
    height = _FRAME_HEIGHT + _ROW_HEIGHT * len(rows)
    figure, axis = plt.subplots(figsize=(7.4, height), layout="constrained")
    axis.axvline(0, color="0.6", linewidth=0.8)
    for place, row in enumerate(rows):
        course = [value for value in (row.low, row.difference, row.high) if value is not None]
        label = None if place else "ours, 95 %"
        axis.plot(course, [place] * 3, "-o", color=COLOURS[0], markersize=5, markevery=[1], label=label)
    published = {place: row.paper_difference for place, row in enumerate(rows) if row.paper_difference is not None}
    if published:
        axis.plot(list(published.values()), list(published), "D", color=COLOURS[1], markersize=5, label="paper")
        figure.legend(loc="outside lower center", ncols=2)
    axis.set_yticks(range(len(rows)), [row.system for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)  # the first on top, as in the table
    axis.set_xlabel(f"BLEU less that of {reference}")
    axis.set_title(title)
    return figure
