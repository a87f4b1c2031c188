"""Experiments whose rows are listed: the tables of the papers, and anybody's own.

Runs belong to a corpus, not to a table: what one table has trained, another finds done.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from qknorm.experiments.cells import Cell
from qknorm.experiments.corpus import ChosenCorpus, corpora_of, pair_of
from qknorm.experiments.experiment import Experiment, shrunk_at
from qknorm.experiments.plan import Plan, planned_runs, sharing_runs
from qknorm.experiments.recipe import FULL, MEDIUM_MINUTES, RowRecipe, Size, TableRecipe, load_sizes, names
from qknorm.experiments.views.table import view_of
from qknorm.runs.recipe import Recipe, checked, merged

_WAY_OUT = "give the row another name"


def plan_table(
    table: TableRecipe,
    origin: str,
    size: Size,
    corpus: str | None = None,
    seeds: int = 1,
    minutes: float = MEDIUM_MINUTES,
) -> Plan:
    """Every run that a table needs; `origin` is its name, or the files it is from."""
    cells, full = list[Cell](), dict[str, Recipe]()
    choices = list(itertools.product(range(1, seeds + 1), table.rates_at(size) or [None]))
    for chosen in corpora_of(table, origin, size, corpus):
        listed = _Listed(chosen, size, minutes, origin)
        # The full model gives its name before all others, also where it is not a row.
        before = [listed.cell(FULL, seed, rate) for seed, rate in choices]
        rows = [listed.cell(row, seed, rate) for row in table.rows_at(size) for seed, rate in choices]
        cells += sharing_runs([*before, *rows])[len(before) :]
        full[chosen.name] = listed.recipe(FULL, 1, None)
    cells.sort(key=lambda cell: cell.settings["seed"])
    about = table.model_copy(update={"shrunk": shrunk_at(size, minutes)})
    name = "+".join(_short(part) for part in origin.split("+"))
    experiment = Experiment(
        name=name, task="translation", about=about, cells=planned_runs(cells), size=size, minutes=minutes
    )
    view_of(experiment, origin)
    return Plan(experiment, cells, full)


@dataclass(frozen=True)
class _Listed:
    """The rows of a table on a corpus."""

    corpus: ChosenCorpus
    size: str
    minutes: float
    origin: str

    def cell(self, row: RowRecipe, seed: int, rate: float | None) -> Cell:
        tried = {} if rate is None else {"rate": rate}
        settings = {"corpus": self.corpus.name, "system": row.name} | tried | {"seed": seed}
        name = f"{self.corpus.name}/{row.name}{'' if rate is None else f'_rate-{rate:g}'}_seed-{seed}"
        return Cell(name, settings, self.recipe(row, seed, rate), _WAY_OUT)

    def recipe(self, row: RowRecipe, seed: int, rate: float | None) -> Recipe:
        known = load_sizes()[self.size]
        content = merged(
            known["recipe"],
            {"minutes": self.minutes} if "minutes" in known["recipe"] else {},
            known.get("pairs", {}).get(pair_of(self.corpus.name), {}),
            {"data": self.corpus.data, "training": {"seed": seed}},
            row.changed(self.size),
            {} if rate is None else {"training": {"peak": rate}},
        )
        return checked(Recipe, content, f"{self.origin}, row {row.name}")


def _short(origin: str) -> str:
    """A table of the package by its name; a file without its folder and ending, but never by a name of the package."""
    if origin in names():
        return origin
    name = Path(origin).name.removesuffix(".yaml")
    return f"{name}-own" if name in names() else name
