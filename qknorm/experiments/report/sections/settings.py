"""Where the recipes of the systems differ, and the whole recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import yaml

from qknorm.experiments.report.contests import System
from qknorm.experiments.report.material import Material
from qknorm.experiments.report.section import Section
from qknorm.runs.recipe import flat
from qknorm.runs.recipe_part import RecipePart


@dataclass(frozen=True)
class SettingsSection(Section):
    names: list[str]
    """Of the systems."""
    differences: list[tuple[str, list[str]]]
    recipes: list[tuple[str, str]]
    title = "Settings"
    template = """
{% if section.differences %}
<p>Where the recipes of the systems differ:</p>
{% call scrolling("Settings that differ") %}
<table>
  {{ head(["key"] + section.names) }}
  <tbody>
    {% for key, values in section.differences %}
    <tr><th scope="row">{{ key }}</th>{% for value in values %}<td>{{ value }}</td>{% endfor %}</tr>
    {% endfor %}
  </tbody>
</table>
{% endcall %}
{% endif %}
{% for name, recipe in section.recipes %}
<details>
  <summary>The whole recipe of {{ name }}</summary>
  {% call scrolling("Recipe of " ~ name) %}<pre>{{ recipe }}</pre>{% endcall %}
</details>
{% endfor %}
"""

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        systems = material.systems
        recipes = [(system.name, _as_yaml(system.first.recipe)) for system in systems]
        return [cls([system.name for system in systems], _differences(systems), recipes)] if systems else []


def _differences(systems: Sequence[System]) -> list[tuple[str, list[str]]]:
    """The keys in which the recipes differ, with each system's value."""
    recipes = [flat(system.first.recipe) for system in systems]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    rows = [
        (key, [str(recipe.get(key, "")) for recipe in recipes]) for key in keys if key not in ("name", "training.seed")
    ]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _as_yaml(recipe: RecipePart) -> str:
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
