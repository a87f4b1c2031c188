"""An experiment: what it says of itself, and its runs, each with what distinguishes it. Its folder keeps it.

runs/NAME/               sweep.json  results.csv  results.json  summary.md       rows that lists span
runs/reproduce-SIZE/     tables/TABLE_CORPUS.{md, csv, tex, json}                rows that a table lists
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import model_validator

from qknorm.data.jsonfiles import Stored
from qknorm.data.textfiles import replacing
from qknorm.experiments.corpus import pair_of
from qknorm.experiments.recipe import MEDIUM_MINUTES, About, TableRecipe, load_sizes
from qknorm.runs.recipe_part import RecipePart
from qknorm.runs.run import folder_of

PLAN = "sweep.json"
"""The file in the folder of a sweep that says which runs it has."""


class PlannedRun(RecipePart):
    name: str
    settings: dict[str, Any]
    """What distinguishes it from the others; its seed and fold among them."""
    is_baseline: bool = False
    """Whether it stands beside a grid, and not in it."""


class Experiment(Stored):
    """Rows × repeats."""

    name: str = ""
    task: str = "language"
    about: TableRecipe | About = About()
    cells: tuple[PlannedRun, ...] = ()
    """One for each choice; choices that come to the same have one run."""
    size: str = ""
    """Of a table: whether it is small, and how it is planned then."""
    minutes: float = MEDIUM_MINUTES
    """Of a run, at the size that is planned by them."""

    @model_validator(mode="before")
    @classmethod
    def _as_written_now(cls, content: Any) -> Any:
        return _of_contests(content) if isinstance(content, dict) and "contests" in content else content

    @property
    def table(self) -> TableRecipe | None:
        """Where its rows are listed; None where lists span them."""
        return self.about if isinstance(self.about, TableRecipe) else None

    @property
    def corpora(self) -> list[str]:
        """Systems are compared on each by itself; one without a name, where nothing tells corpora apart."""
        return list(dict.fromkeys(str(cell.settings.get("corpus", "")) for cell in self.cells))

    def folder(self, runs: Path) -> Path:
        """Where its runs are: those of tables are shared, and those of other minutes are not compared with them."""
        if self.table is None:
            return folder_of(self.name, runs)
        return runs / (f"reproduce-{self.size}" + ("" if self.minutes == MEDIUM_MINUTES else f"-{self.minutes:g}"))

    def page(self, folder: Path) -> Path:
        """Its page, beside which the other forms lie."""
        if self.table is None:
            return folder / "summary.md"
        return folder / "tables" / f"{'_'.join([self.name, *self.corpora[: len(self.corpora) == 1]])}.md"

    def numbers(self, folder: Path) -> Path:
        """The JSON with everything."""
        return folder / "results.json" if self.table is None else self.page(folder).with_suffix(".json")

    def title_of(self, corpus: str) -> str:
        pair = pair_of(corpus)
        return f"{pair.replace('-', '→')} ({corpus})" if pair else corpus

    def as_tokens(self, corpus: str) -> bool:
        """Whether BLEU is that of tokens: of the TED talks the first paper scored the text."""
        return self.table is not None and self.table.bleu == "tokens" and pair_of(corpus) in (None, "en-vi")

    def keep_plan(self, folder: Path) -> None:
        """So that whoever looks at the folder knows which runs belong to it, while some are missing."""
        if self.table is None:
            with replacing(folder / PLAN) as file:
                file.write(json.dumps(self.content(), indent=1, ensure_ascii=False).encode())

    def content(self) -> dict[str, Any]:
        return {"task": self.task, **super().content()}


def is_sweep(folder: Path) -> bool:
    return (folder / PLAN).is_file()


def shrunk_at(size: str, minutes: float) -> str:
    """What a table says on its face."""
    told: str = load_sizes()[size]["shrunk"]
    return told.format(minutes=minutes)


def _of_contests(content: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a table of an earlier version, which listed its runs by corpus, row, rate and seed."""
    cells = [
        {
            "name": run,
            "settings": {"corpus": contest["corpus"], "system": entrant["row"]}
            | ({} if candidate["rate"] is None else {"rate": candidate["rate"]})
            | {"seed": seed},
        }
        for contest in content["contests"]
        for entrant in contest["entrants"]
        for candidate in entrant["candidates"]
        for seed, run in enumerate(candidate["runs"], start=1)
    ]
    shrunk = shrunk_at(content["size"], content.get("minutes", MEDIUM_MINUTES))
    return {**content, "task": "translation", "about": content["table"] | {"shrunk": shrunk}, "cells": cells}
