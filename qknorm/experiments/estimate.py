"""How long runs will take on this machine: a guess, before they begin."""

from __future__ import annotations

from collections.abc import Sequence

from qknorm.experiments.cells import Cell, cores
from qknorm.runs.recipe import AnyRecipe
from qknorm.tasks.table import TASKS
from qknorm.training.speed import operations_per_second

# Of the speed of a large matrix product, what a training run on a CPU reaches: small translators of 6.6 minutes did.
_EFFICIENCY = 0.35
_SECONDS_BESIDE_TRAINING = 10.0


def estimated_seconds(cells: Sequence[Cell], jobs: int | None) -> dict[str, float]:
    """Of each run by its name, when `jobs` of them share the cores; none ends before its last possible update."""
    threads = max(1, cores() // min(jobs or cores(), max(len(cells), 1)))
    speed = operations_per_second(threads=threads) * _EFFICIENCY
    return {cell.name: _seconds(cell.recipe, speed) for cell in cells}


def _seconds(recipe: AnyRecipe, speed: float) -> float:
    task = TASKS[recipe.task]
    planned = task.planned_seconds(recipe)
    return task.operations(recipe) / speed + _SECONDS_BESIDE_TRAINING if planned is None else planned
