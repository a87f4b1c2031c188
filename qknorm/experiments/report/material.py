"""What the sections of a report draw from: the runs, the systems they are, and how these compare."""

from __future__ import annotations

from dataclasses import dataclass

from qknorm.experiments.report.collect import Collection
from qknorm.experiments.report.contests import Contest, System, TestSet, contests_of, systems_of, test_sets_of


@dataclass(frozen=True)
class Material:
    """Everything that was found and computed once."""

    collection: Collection
    systems: list[System]
    """Translators."""
    test_sets: list[TestSet]
    contests: list[Contest]


def material_of(collection: Collection) -> Material:
    systems = systems_of(collection.translators)
    return Material(collection, systems, test_sets_of(systems), contests_of(systems, collection.experiments))
