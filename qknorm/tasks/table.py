"""The tasks by the names that recipes know them by, and training whatever a recipe describes.

The task `translation` is described by the class `Translation` of the file translation.py.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from pathlib import Path
from typing import Any

from qknorm import processes
from qknorm.runs.any_recipe import RECIPES, AnyRecipe
from qknorm.runs.writer import only_writer
from qknorm.screen import Screen
from qknorm.tasks.description import TaskDescription

TASKS: dict[str, TaskDescription[Any, Any]] = {
    name: getattr(import_module(f"qknorm.tasks.{name}"), name.capitalize())() for name in RECIPES
}


def train(recipe: AnyRecipe, folder: Path, console: Screen, resume: bool) -> None:
    """Train from the beginning, or go on where an interrupted run stands; nobody else writes to the folder."""
    with _only_writers(folder):
        TASKS[recipe.task].train(recipe, folder, console, resume)


def prolong(recipe: AnyRecipe, folder: Path, console: Screen, minutes: float) -> None:
    """Let a run that has ended go on for this many minutes; nobody else writes to the folder."""
    with _only_writers(folder):
        TASKS[recipe.task].prolong(recipe, folder, console, minutes)


def _only_writers(folder: Path) -> contextlib.AbstractContextManager[None]:
    """The first process holds the folder for all."""
    return only_writer(folder) if processes.rank() == 0 else contextlib.nullcontext()
