"""What becomes of a recipe; that the run goes on, in tests/journeys/test_planning.py."""

from __future__ import annotations

from typing import Any

from qknorm.runs.recipe import Recipe, merged
from qknorm.training import planner
from qknorm.training.planner import TextSize
from qknorm.training.prolonged import prolonged_recipe


def test_dropout_of_a_prolonged_run_is_that_of_all_its_passes_unless_somebody_chose_it() -> None:
    text = TextSize(positions=350_000, dev=20_000, test=30_000)
    short, more = (planner.length_for(text, minutes * 60, 0.2, 900.0) for minutes in (10, 60))
    planned = _recipe(planner.START, planner.settings(short, 256))
    longer = prolonged_recipe(planned, short.updates // 2, more)
    passes = longer.training.total_updates * more.passes / more.updates
    assert longer.model.dropout == planner.dropout_for(passes, 256) > planned.model.dropout
    again = prolonged_recipe(longer, longer.training.total_updates // 2, more)
    assert again.model.dropout > longer.model.dropout
    chosen = _recipe(planned.model_dump(), {"model": {"relu_dropout": 0.4}})
    assert prolonged_recipe(chosen, short.updates // 2, more).model == chosen.model


def _recipe(*contents: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(merged({"data": {"corpus": "multi30k-en-de"}}, *contents))
