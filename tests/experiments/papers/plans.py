"""Plans of tables, and a table of one's own."""

from __future__ import annotations

from qknorm.experiments.cells import Cell
from qknorm.experiments.papers import plan as planning
from qknorm.experiments.papers.plan import Plan
from qknorm.experiments.papers.sizes import MEDIUM_MINUTES, Size
from qknorm.experiments.papers.table import load_table


def planned(name: str, size: Size, corpus: str | None, seeds: int = 1, minutes: float = MEDIUM_MINUTES) -> Plan:
    return planning.plan(load_table(name), name, size, corpus, seeds, minutes)


def run_of(plan: Plan, row: str, corpus: int = 0) -> Cell:
    """The first run that stands for a row."""
    entrant = next(entrant for entrant in plan.experiment.contests[corpus].entrants if entrant.row == row)
    return plan.cells[entrant.candidates[0].runs[0]]


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
