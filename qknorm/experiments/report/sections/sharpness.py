"""g of every layer of a translator over the updates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from qknorm.experiments.report import words
from qknorm.experiments.report.charts import Curve, Point
from qknorm.experiments.report.contests import Material, System
from qknorm.experiments.report.section import Figure, Group, Section, course, figures
from qknorm.runs.contents import ValidationLine

_KINDS = {
    r"encoder\.\d+\.attention": ("Encoder", "the source looks at itself"),
    r"decoder\.\d+\.attention": ("Decoder", "the translation looks at what it has said"),
    r"decoder\.\d+\.source_attention": ("Cross", "the translation looks at the source"),
}


@dataclass(frozen=True)
class SharpnessSection(Section):
    groups: list[Group]
    several_seeds: bool
    title = "Sharpness g"

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        several = any(len(system.runs) > 1 for system in material.systems)
        return [cls([_group(system) for system in material.systems], several)] if material.systems else []


def _group(system: System) -> Group:
    run = system.first
    if run.recipe.model.qk_norm.kind != "lp":
        return Group(system.name, f"has no g: its attention is that of {words.attention(run.recipe.model)}.", [])
    if not any(line.scales for line in run.validations):
        return Group(system.name, "has learned no g so far.", [])
    charts: list[Figure] = []
    for pattern, (kind, meaning) in _KINDS.items():
        curves = scale_curves(run.validations, pattern, run.scale_start)
        how = f"How sharply {meaning}: a curve that falls means that a layer came to look at more pieces at once."
        charts += figures(kind, how, curves, "g")
    return Group(system.name, "", charts)


def scale_curves(validations: Sequence[ValidationLine], pattern: str, start: float | None) -> list[Curve]:
    """g of each layer whose name fits, from its start on; where every head has its own, their mean."""
    names = dict.fromkeys(name for line in validations for name in line.scales if re.fullmatch(pattern, name))
    first = [] if start is None else [(0.0, start)]
    return [
        Curve(f"layer {layer + 1}", [*first, *_points(validations, name)], layer) for layer, name in enumerate(names)
    ]


def _points(validations: Sequence[ValidationLine], name: str) -> list[Point]:
    return course(validations, lambda line: line.mean_scales.get(name))
