from __future__ import annotations

from typing import Any

import pytest

from qknorm.runs.any_recipe import RECIPES
from qknorm.runs.recipe import AnyRecipe
from qknorm.tasks.table import TASKS

DATA = {"translation": {"corpus": "phrasebook-en-gl"}, "language": {"corpus": "tinyshakespeare"}}


def recipe_of(task: str, **parts: dict[str, Any]) -> AnyRecipe:
    return RECIPES[task].model_validate({"task": task, "data": DATA[task], **parts})


def test_every_recipe_has_a_description_and_every_description_a_recipe() -> None:
    assert TASKS.keys() == RECIPES.keys()


@pytest.mark.parametrize("task", TASKS)
def test_a_table_shows_what_a_result_holds(task: str) -> None:
    assert TASKS[task].headings.keys() <= set(TASKS[task].measured)


@pytest.mark.parametrize("task", TASKS)
def test_a_wider_model_takes_more_operations(task: str) -> None:
    narrow, wide = (recipe_of(task, model={"dim": dim, "heads": 2}) for dim in (64, 128))
    described = TASKS[task]
    assert described.operations(narrow) < described.operations(wide) < 4.01 * described.operations(narrow)
