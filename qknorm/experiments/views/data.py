"""Table 1: of each corpus what was published, and ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qknorm.experiments.corpus import pair_of
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Answer
from qknorm.experiments.results import Entrant, RunResult, contests_of
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import ModelRecipe
from qknorm.runs.translator_run import TranslatorRun

_COLUMNS = ("examples", "words", "parameters", "L", "dev BLEU", "hours")


def answer(experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    contests, table = contests_of(experiment, results), experiment.table
    rows = []
    for contest in contests:
        if table and (published := table.data.get(pair_of(contest.corpus) or "")):
            rows.append([contest.title, "paper", *(_published(published.get(column)) for column in _COLUMNS)])
        rows.append([contest.title, "ours", *_described(contest.entrants[0])])
    columns, trained = ["corpus", "", *_COLUMNS], sum(bool(contest.entrants[0].done) for contest in contests)
    sentence = f"{trained} of {len(contests)} corpora were trained on, and stand beside what was published."
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    return Answer([sentence], tables=[Table("", "", columns, rows, text_columns=2)], records=records)


def _described(entrant: Entrant) -> list[str]:
    """The columns for the first finished run. Only the hours are those of all runs."""
    if not entrant.done:
        return ["not run", *[""] * (len(_COLUMNS) - 1)]
    first = entrant.done[0]
    run = TranslatorRun.open(first.folder)
    (about,), parts = run.corpus.pairs, run.parts
    return [
        f"{about.kept:,}",
        "" if about.words is None else f"{about.words:,}",
        f"{sum(parameter.numel() for parameter in run.make_model().parameters()):,}",
        _length(run.recipe.model, parts.scale_init),
        f"{first.measured['best_dev_bleu']:.2f}",
        f"{entrant.hours:.2f}",
    ]


def _published(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}"


def _length(model: ModelRecipe, scale_init: float | None) -> str:
    """L, of which g = log2(L² − L) is made; empty where g starts otherwise, or there is none."""
    if scale_init is None or not isinstance(model.qk_norm, LpRecipe) or model.qk_norm.scale_init != "henry":
        return ""
    return f"{(1 + math.sqrt(1 + 4 * 2**scale_init)) / 2:.0f}"
