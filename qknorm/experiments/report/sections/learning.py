"""Scores and losses on the dev set while learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from qknorm.experiments.report.charts import Curve
from qknorm.experiments.report.collect import Trained, TrainedTranslator
from qknorm.experiments.report.contests import Material, System
from qknorm.experiments.report.section import Figure, Group, Section, course, figures
from qknorm.runs.contents import ValidationLine


@dataclass(frozen=True)
class LearningSection(Section):
    """Curves, a group for each origin of the text."""

    groups: list[Group]
    title = "Learning"

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        groups = [*_groups(material.systems), *map(_other, material.collection.others)]
        return [cls(groups)] if groups else []


def _groups(systems: Sequence[System]) -> list[Group]:
    """One group for each origin of the text: dev scores of different sets have nothing to do with each other."""
    by_origin: dict[str, list[tuple[System, TrainedTranslator]]] = {}
    for system in systems:
        directions = system.first.recipe.data.directions
        origin = ", ".join(direction.corpus or f"{direction.source} and {direction.target}" for direction in directions)
        by_origin.setdefault(origin, []).extend((system, run) for run in system.runs)
    return [Group(origin if len(by_origin) > 1 else "", "", _figures(runs)) for origin, runs in by_origin.items()]


# Title, how to read it, the axis, the number.
_MEASURES: tuple[tuple[str, str, str, Callable[[ValidationLine], float | None]], ...] = (
    (
        "Score while learning",
        "Quality on the dev set (sentences that are not learned from) after this many updates of the model: higher is "
        "better, and a curve that still rises at its end could have gone on.",
        "dev BLEU",
        lambda line: line.dev_bleu,
    ),
    (
        "Loss while learning",
        "How surprised the model is by the right translation of the dev set, per piece of a word: lower is better, and "
        "a curve that turns upwards means learning by heart.",
        "dev loss",
        lambda line: line.dev_loss,
    ),
)


def _figures(runs: Sequence[tuple[System, TrainedTranslator]]) -> list[Figure]:
    shown: list[Figure] = []
    for title, how_to_read, y_name, value in _MEASURES:
        curves = [Curve(system.name, course(run.validations, value), system.number) for system, run in runs]
        shown += figures(title, how_to_read, curves, y_name)
    return shown


def _other(run: Trained) -> Group:
    """Every measure of a run of which no more is known."""
    shown: list[Figure] = []
    for name in dict.fromkeys(name for line in run.validations for name in line.measures):
        points = [(float(line.step), line.measures[name]) for line in run.validations if name in line.measures]
        shown += figures(name, "", [Curve(run.name, points, 0)], name)
    return Group(run.name, "", shown)
