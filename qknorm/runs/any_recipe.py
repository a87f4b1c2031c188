"""Recipes of every task: the key `task` of a file tells which one it holds.

A task of another program makes its recipe known by `qknorm.tasks.table.add`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qknorm.errors import InputError
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.recipe import AnyRecipe, Recipe, checked, read_recipe, with_overrides

RECIPES: dict[str, type[AnyRecipe]] = {"translation": Recipe, "language": LanguageRecipe}
"""By task. A new one is its recipe here, and its description in `tasks`."""

SWEEP_KEYS = {
    "title": "What the page of the sweep is called.",
    "question": "What the sweep is to answer.",
    "caveat": "What it cannot say.",
    "paper": "The paper that its page cites: `henry-2020` or `lopez-rubio-2026`.",
    "shows": "What its page is about: `p`, `rates` (the learning rate) or `scores` (of translators).",
    "size": "Which of `sizes` is taken where --size names none.",
    "sizes": "Named sets of changes, such as `smoke: {model: {dim: 24}, shrunk: a tiny model}`; `shrunk` says on the "
    "page what has become smaller. The results go to runs/NAME-SIZE.",
    "baselines": "Other models, such as `- qk_norm: none`, that span the same grid but for the lists of `model`.",
}
"""What `qknorm sweep` reads beside the recipe of its runs."""


def load_any_recipe(path: Path, overrides: Sequence[str] = ()) -> AnyRecipe:
    """Read a recipe of the task that it names; of a translation where it names none."""
    content = read_recipe(path)
    if not SWEEP_KEYS.keys().isdisjoint(content):
        raise InputError(f"{path} is a sweep of many runs; try: qknorm sweep {shlex.quote(str(path))}")
    kind = kind_of(content, str(path))
    return checked(kind, with_overrides(kind, content, overrides), str(path))


def kind_of(content: Mapping[str, Any], where: str) -> type[AnyRecipe]:
    """The class of the recipe that has this content."""
    task = content.get("task", "translation")
    if task not in RECIPES:
        raise InputError(f"{where}: task must be one of {', '.join(RECIPES)}, not {task!r}")
    return RECIPES[task]
