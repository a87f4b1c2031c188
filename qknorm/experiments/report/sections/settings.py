"""Where the recipes of the systems differ, and the whole recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import yaml

from qknorm.experiments.report.contests import Material, System
from qknorm.experiments.report.section import Section
from qknorm.runs.recipe import flat
from qknorm.runs.recipe_part import RecipePart


@dataclass(frozen=True)
class SettingsSection(Section):
    names: list[str]
    """Of the systems."""
    differences: list[list[str]]
    """A key, and each system's value."""
    recipes: list[tuple[str, str]]
    title = "Settings"

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        systems = material.systems
        recipes = [(system.name, _as_yaml(system.first.recipe)) for system in systems]
        return [cls([system.name for system in systems], _differences(systems), recipes)] if systems else []


def _differences(systems: Sequence[System]) -> list[list[str]]:
    recipes = [flat(system.first.recipe) for system in systems]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if key not in ("name", "training.seed"))
    rows = [[key, *(str(recipe.get(key, "")) for recipe in recipes)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _as_yaml(recipe: RecipePart) -> str:
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
