from __future__ import annotations

from typing import Any

import pytest

from qknorm.experiments import estimate
from qknorm.experiments.cells import Cell
from qknorm.runs.any_recipe import RECIPES

DATA = {"data": {"corpus": "phrasebook-en-gl"}}


def seconds(content: dict[str, Any]) -> float:
    cell = Cell("run", {}, RECIPES["translation"].model_validate(DATA | content))
    return estimate.estimated_seconds([cell], 1)["run"]


def test_twice_the_updates_take_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "operations_per_second", lambda threads: 1e9 * threads)
    none, half, whole = (seconds({"training": {"max_updates": updates}}) for updates in (1, 1001, 2001))
    assert whole - half == pytest.approx(half - none)
    assert half > none


def test_a_run_of_some_minutes_takes_them() -> None:
    assert seconds({"minutes": 5}) == 300
