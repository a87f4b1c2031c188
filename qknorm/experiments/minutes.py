"""Minutes for many runs: one plan for all that are compared, made when the first of them is begun, and kept.

Each by itself would plan as many updates as the machine has time for at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from qknorm.errors import InputError
from qknorm.experiments.cells import Cell
from qknorm.runs.recipe import Recipe, checked, load_recipe, save_recipe, settled
from qknorm.screen import Screen
from qknorm.training.planned import planned_recipe
from qknorm.training.speed import using_threads

PLAN = "plan.yaml"


def kept_plan(recipe: Recipe, folder: Path, console: Screen, threads: int) -> Recipe:
    """The plan in `folder`, or a new one for a recipe with minutes, of runs that have this many threads each.

    It is kept with its minutes: runs of others are not compared with these.
    """
    file = folder / PLAN
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{PLAN}.lock"):  # somebody else may be planning for the same runs
        if not file.exists():
            with using_threads(threads):
                plan, _ = planned_recipe(recipe, console)
            save_recipe(plan.model_copy(update={"minutes": recipe.minutes}), file)
    kept = load_recipe(file)
    if kept.minutes not in (None, recipe.minutes):  # None: of an earlier version
        raise InputError(
            f"the runs in {folder} were planned for {kept.minutes:g} minutes each, not {recipe.minutes:g}; choose "
            "another name=NAME, so that only runs of one length are compared"
        )
    return kept


def by_plan(cell: Cell, plan: Recipe) -> Cell:
    """The same run with plain numbers for what its minutes decide."""
    assert isinstance(cell.recipe, Recipe)
    return replace(cell, recipe=settled(cell.recipe, plan))


def by_one_plan(cells: Sequence[Cell], folder: Path, console: Screen, threads: int) -> list[Cell]:
    """Runs of one text, planned for what all of them ask for; the same cells if they have no minutes."""
    recipes = [cell.recipe for cell in cells if isinstance(cell.recipe, Recipe) and cell.recipe.minutes is not None]
    if not recipes:
        return list(cells)
    texts = {recipe.data.model_dump_json(include={"corpus", "source", "target", "pairs"}) for recipe in recipes}
    if len(texts) > 1:
        raise InputError("minutes cannot be planned for several texts at once; give training.max_updates instead")
    if len({recipe.minutes for recipe in recipes}) > 1:
        raise InputError("runs that are compared have one plan, so minutes must be the same for all of them")
    plan = kept_plan(_common(recipes), folder, console, threads)
    return [by_plan(cell, plan) for cell in cells]


def _common(recipes: Sequence[Recipe]) -> Recipe:
    """What all recipes ask for alike: a plan lies under every run, so it must hold nothing that only some ask for."""
    first, *others = [recipe.model_dump(exclude_unset=True) for recipe in recipes]
    return checked(Recipe, _shared(first, others), "the runs that share a plan")


def _shared(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The keys that are in all, with the same value; of parts, those of the part."""
    shared: dict[str, Any] = {}
    for key, value in first.items():
        if not all(key in other for other in others):
            continue
        if isinstance(value, Mapping):
            shared[key] = _shared(value, [other[key] for other in others])
        elif all(other[key] == value for other in others):
            shared[key] = value
    return shared
