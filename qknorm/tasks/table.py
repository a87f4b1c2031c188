"""The tasks by the names that recipes know them by, and training whatever a recipe describes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from qknorm import processes
from qknorm.runs.any_recipe import RECIPES
from qknorm.runs.recipe import AnyRecipe
from qknorm.runs.writer import only_writer
from qknorm.screen import Screen
from qknorm.tasks.description import TaskDescription
from qknorm.tasks.language import LanguageDescription
from qknorm.tasks.translation import TranslationDescription

TASKS: dict[str, TaskDescription[Any, Any]] = {}


def add(description: TaskDescription[Any, Any]) -> None:
    """Make a task known to all commands by the name in its recipe."""
    name = description.recipe_type.model_fields["task"].default
    TASKS[name] = description
    RECIPES[name] = description.recipe_type


for _description in (TranslationDescription(), LanguageDescription()):
    add(_description)


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
