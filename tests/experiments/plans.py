"""Plans of tables, and a table of one's own."""

from __future__ import annotations

from pathlib import Path

from qknorm.experiments.cells import Cell
from qknorm.experiments.listed import plan_table
from qknorm.experiments.plan import Plan
from qknorm.experiments.recipe import MEDIUM_MINUTES, Size, load_table
from qknorm.experiments.results import CorpusRows, contests_of, load_results


def planned(name: str, size: Size, corpus: str | None, seeds: int = 1, minutes: float = MEDIUM_MINUTES) -> Plan:
    return plan_table(load_table(name), name, size, corpus, seeds, minutes)


def run_of(plan: Plan, row: str, corpus: int = 0) -> Cell:
    """The first run that stands for a row."""
    name = plan.experiment.corpora[corpus]
    return next(cell for cell in plan.cells if (cell.settings["corpus"], cell.settings["system"]) == (name, row))


def contest_of(plan: Plan, folder: Path) -> CorpusRows:
    """What its runs left, of a plan with one corpus."""
    (contest,) = contests_of(plan.experiment, load_results(plan.experiment, folder))
    return contest


OWN = """
title: Which norm?
question: Is a larger p better?
rates: [0.002, 0.004]
rows:
  - like: qknorm
  - name: p3
    label: p = 3 & more
    changes: {model: {p: 3}}
    published: 20
"""
