"""What a table shows of its runs: test BLEU, the data and the model, or where the heads look."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from qknorm.evaluation import wording
from qknorm.experiments.papers import differences_figure, henry_figures, rates_figure
from qknorm.experiments.papers.plan import Contest, Entrant, Experiment
from qknorm.experiments.papers.results import Result, Row, hours_of, planned_for, rate_caveats, result_of
from qknorm.runs.contents import TranslationResult
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import ModelRecipe
from qknorm.runs.translator_run import TranslatorRun

DATA_COLUMNS = ("examples", "words", "parameters", "L", "dev BLEU", "hours")


@dataclass(frozen=True)
class Table:
    """A table as it is shown, and its numbers as they are."""

    columns: list[str]
    lines: list[list[str]]
    records: list[dict[str, Any]]
    results: list[Result] = field(default_factory=list)
    """Of a table of BLEU, for each corpus."""
    sentences: list[str] = field(default_factory=list)
    """What comes out of any other table."""
    plans: list[str] = field(default_factory=list)
    """What was planned for each corpus, where minutes decide it."""
    caveats: list[str] = field(default_factory=list)
    """What is said against the runs themselves."""
    captions: dict[Path, str] = field(default_factory=dict)
    """Of each figure that was drawn, by its PNG."""


def view(experiment: Experiment, folder: Path) -> Table:
    """What is known so far; figures are drawn on the way."""
    shown = _VIEWS[experiment.table.shows](experiment, folder)
    plans = [planned_for(contest, folder) for contest in experiment.contests]
    captions = shown.captions | _differences(experiment, shown, folder) | _rates(experiment, folder)
    return replace(shown, plans=[*filter(None, plans)], caveats=_caveats(experiment, folder), captions=captions)


def _differences(experiment: Experiment, shown: Table, folder: Path) -> dict[Path, str]:
    captions = {}
    for result in shown.results:
        drawn = differences_figure.draw(result, _figure_file(experiment, result.contest, folder, "differences"))
        if drawn is not None:
            is_published = any(row.paper_difference is not None for row in result.rows)
            captions[drawn] = "Each row less the reference" + (", ours and the paper's" if is_published else "")
    return captions


def _rates(experiment: Experiment, folder: Path) -> dict[Path, str]:
    drawn = [
        rates_figure.draw(experiment, contest, folder, _figure_file(experiment, contest, folder, "learning-rates"))
        for contest in experiment.contests
    ]
    return {path: "Dev scores of each row by its learning rate" for path in drawn if path is not None}


def _figure_file(experiment: Experiment, contest: Contest, folder: Path, name: str) -> Path:
    """Without its ending. Tables of a corpus share runs, but each has figures of its own."""
    return folder / "figures" / contest.corpus / f"{experiment.name}_{name}"


def _caveats(experiment: Experiment, folder: Path) -> list[str]:
    several = len(experiment.contests) > 1
    return [
        f"On {contest.title} {sentence}" if several else sentence
        for contest in experiment.contests
        for sentence in rate_caveats(experiment, contest, folder)
    ]


def _bleu(experiment: Experiment, folder: Path) -> Table:
    results = [result_of(experiment, contest, folder) for contest in experiment.contests]
    rows = [row for result in results for row in result.rows]
    directions = experiment.table.pairs
    paper = f"paper ({directions[0].replace('-', '→')})" if len(directions) == 1 else "paper"
    columns = [
        "corpus", "system", paper, "its diff.", "ours", "our diff.", "95 %", "p", "ours − paper", "seeds", "rate",
        "hours",
    ]  # fmt: skip
    columns, lines = _without_empty(columns, [_cells(row) for row in rows])
    return Table(columns, lines, [asdict(row) for row in rows], results)


def _without_empty(columns: list[str], lines: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Columns in which something stands: an own table may have nothing published, and tries one rate as a rule."""
    used = [place for place in range(len(columns)) if any(line[place] for line in lines)]
    return [columns[place] for place in used], [[line[place] for place in used] for line in lines]


def _cells(row: Row) -> list[str]:
    deviation = "" if row.ours_sd is None else f" ± {row.ours_sd:.2f}"
    return [
        row.corpus,
        row.system,
        _number(row.paper),
        _number(row.paper_difference, signed=True),
        "not run" if row.ours is None else f"{row.ours:.2f}{deviation}",
        _number(row.difference, signed=True),
        wording.interval(row.low, row.high, signed=True),
        wording.p_value(row.p_value, row.p_is_bound),
        _number(row.ours_minus_paper, signed=True),
        str(row.seeds or ""),
        "" if row.rate is None else f"{row.rate:g} (of {row.rates_tried})",
        _number(row.hours),
    ]


def _number(value: float | None, signed: bool = False) -> str:
    return "" if value is None else f"{value:+.2f}" if signed else f"{value:.2f}"


def _data(experiment: Experiment, folder: Path) -> Table:
    """Table 1: of each corpus what was published, and ours."""
    lines = []
    for contest in experiment.contests:
        if published := experiment.table.data.get(contest.pair or ""):
            lines.append([contest.title, "paper", *(_published(published.get(column)) for column in DATA_COLUMNS)])
        entrant = contest.entrants[0]
        lines.append([contest.title, "ours", *(_described(entrant, folder) or _nothing(DATA_COLUMNS))])
    trained = sum(bool(contest.entrants[0].done(folder)) for contest in experiment.contests)
    sentence = f"{trained} of {len(experiment.contests)} corpora were trained on, and stand beside what was published."
    return _as_records(["corpus", "", *DATA_COLUMNS], lines, [sentence])


def _described(entrant: Entrant, folder: Path) -> list[str]:
    """The columns of Table 1 for the first finished run; empty without one. Only the hours are those of all runs."""
    if not (done := entrant.done(folder)):
        return []
    run = TranslatorRun.open(done[0])
    (about,), parts, result = run.corpus.pairs, run.parts, run.result(TranslationResult)
    parameters = sum(parameter.numel() for parameter in run.make_model().parameters())
    numbers = (
        f"{about.kept:,}",
        "" if about.words is None else f"{about.words:,}",
        f"{parameters:,}",
        _length(run.recipe.model, parts.scale_init),
    )
    return [*numbers, f"{result.best_dev_bleu:.2f}", f"{hours_of(entrant, folder):.2f}"]


def _published(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}"


def _length(model: ModelRecipe, scale_init: float | None) -> str:
    """L, of which g = log2(L² − L) is made; empty where g starts otherwise, or there is none."""
    if scale_init is None or not isinstance(model.qk_norm, LpRecipe) or model.qk_norm.scale_init != "henry":
        return ""
    return f"{(1 + math.sqrt(1 + 4 * 2**scale_init)) / 2:.0f}"


def _attention(experiment: Experiment, folder: Path) -> Table:
    """Draw the figures of each corpus of which all systems are done; how diffuse they are, as a table."""
    columns = ["corpus", "system", "mean entropy", "lowest head", "highest head", "seeds"]
    drawn = [_diffuseness(experiment, contest, folder) for contest in experiment.contests]
    sentences = [sentence for contest in experiment.contests for sentence in _sharper(experiment, contest, folder)]
    table = _as_records(columns, [line for one in drawn for line in one.lines], sentences)
    return replace(table, captions={path: caption for one in drawn for path, caption in one.captions.items()})


def _sharper(experiment: Experiment, contest: Contest, folder: Path) -> list[str]:
    """Whether and when the reference was sharper than each system, in the mean of all heads of a kind."""
    done = {experiment.row(one).name: runs for one in contest.entrants if (runs := one.done(folder))}
    first = experiment.table.first
    if first not in done:
        return []
    sentences = []
    for kind in henry_figures.KINDS:
        courses = {name: henry_figures.course(runs, kind) for name, runs in done.items()}
        watched = [name for name, course in courses.items() if course.updates]
        for name in watched if first in watched else []:
            if name != first:
                sentences.append(_when(contest, experiment, kind, name, courses))
    return sentences


def _when(
    contest: Contest, experiment: Experiment, kind: str, name: str, courses: Mapping[str, henry_figures.Course]
) -> str:
    titles = {row.name: row.title for row in experiment.table.rows}
    first = experiment.table.first
    update = henry_figures.first_crossing(courses[first], courses[name])
    when = "at the end" if update is None else f"from update {update:,} on"
    ends = [f"{float(courses[one].entropies[-1].mean()):.2f}" for one in (first, name)]
    was = "was not" if update is None else "was"
    return (
        f"On {contest.title}, {kind}: {titles[first]} {was} sharper than {titles[name]} {when}, in the mean of "
        f"its heads (entropy {ends[0]} and {ends[1]} at the end)."
    )


def _diffuseness(experiment: Experiment, contest: Contest, folder: Path) -> henry_figures.Drawn:
    runs = {experiment.row(entrant).title: entrant.done(folder) for entrant in contest.entrants}
    if not all(runs.values()):
        return henry_figures.Drawn([[contest.title, label, *_nothing(range(4))] for label in runs], {})
    drawn = henry_figures.draw(runs, partial(_figure_file, experiment, contest, folder))
    return drawn._replace(lines=[[contest.title, *line] for line in drawn.lines])


def _nothing(columns: Any) -> list[str]:
    return ["not run", *[""] * (len(columns) - 1)]


def _as_records(columns: list[str], lines: list[list[str]], sentences: list[str]) -> Table:
    return Table(columns, lines, [dict(zip(columns, line, strict=True)) for line in lines], sentences=sentences)


_VIEWS: dict[str, Callable[[Experiment, Path], Table]] = {"bleu": _bleu, "data": _data, "attention": _attention}
