"""Minutes for many runs: one plan for all that are compared, made when the first of them is begun, and kept.

Each by itself would plan as many updates as the machine has time for at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from qknorm.errors import InputError
from qknorm.experiments.cells import Cell
from qknorm.runs.recipe import Recipe, load_recipe, save_recipe, settled
from qknorm.screen import Screen
from qknorm.training.planned import planned_recipe
from qknorm.training.speed import using_threads

PLAN = "plan.yaml"


def kept_plan(recipe: Recipe, folder: Path, console: Screen, threads: int) -> Recipe:
    """The plan in `folder`, or a new one for a recipe with minutes, of runs that have this many threads each."""
    file = folder / PLAN
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{PLAN}.lock"):  # somebody else may be planning for the same runs
        if not file.exists():
            with using_threads(threads):
                save_recipe(planned_recipe(recipe, folder, console), file)
    return load_recipe(file)


def by_plan(cell: Cell, plan: Recipe) -> Cell:
    """The same run with plain numbers for what its minutes decide."""
    assert isinstance(cell.recipe, Recipe)
    return replace(cell, recipe=settled(cell.recipe, plan))


def by_one_plan(cells: Sequence[Cell], folder: Path, console: Screen, threads: int) -> list[Cell]:
    """Runs of one text, planned for the first of them; the same cells if they have no minutes."""
    recipes = [cell.recipe for cell in cells if isinstance(cell.recipe, Recipe) and cell.recipe.minutes is not None]
    if not recipes:
        return list(cells)
    texts = {recipe.data.model_dump_json(include={"corpus", "source", "target", "pairs"}) for recipe in recipes}
    if len(texts) > 1:
        raise InputError("minutes cannot be planned for several texts at once; give training.max_updates instead")
    plan = kept_plan(recipes[0], folder, console, threads)
    return [by_plan(cell, plan) for cell in cells]
