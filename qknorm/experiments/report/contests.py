"""Who is compared with whom: seeds become one system, and systems meet on the test sets they share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from qknorm.evaluation.significance import Comparison, compare, measure
from qknorm.experiments.report.collect import Tested, TranslatorRun
from qknorm.experiments.sweep.statistics import holm


@dataclass(frozen=True)
class System:
    """A translator: one run, or several that differ in nothing but their seed."""

    number: int
    """Its place among all systems, by which it has its looks in every chart."""
    name: str
    runs: list[TranslatorRun]

    @property
    def first(self) -> TranslatorRun:
        return self.runs[0]


@dataclass(frozen=True)
class Entry:
    """A system on a test set: one test for each seed."""

    system: System
    tests: list[Tested]
    compared: Comparison

    @property
    def chrf(self) -> float:
        return fmean(test.scores.chrf for test in self.tests)

    @property
    def ter(self) -> float:
        return fmean(test.scores.ter for test in self.tests)


@dataclass(frozen=True)
class Contest:
    """A test set, and the systems that were tested on it; the first is what the others are compared with."""

    languages: tuple[str, str]
    sources: list[str]
    references: list[str]
    entries: list[Entry]
    first_seeds_only: bool
    """Some systems have one seed: of the others, too, only the first is compared."""

    @property
    def title(self) -> str:
        return f"{self.languages[0]} → {self.languages[1]}, {len(self.references):,} sentences"

    @property
    def best(self) -> Entry:
        return max(self.entries, key=lambda entry: entry.compared.bleu)


def systems_of(runs: Sequence[TranslatorRun]) -> list[System]:
    """Those with plain attention first: they are what normalisation is compared with."""
    groups: list[list[TranslatorRun]] = []
    for run in sorted(runs, key=lambda run: run.recipe.model.attention != "dot"):
        for group in groups:
            if _differ_in_seed_alone(run, group):
                group.append(run)
                break
        else:
            groups.append([run])
    return [
        System(number, name, group) for number, (name, group) in enumerate(zip(_names(groups), groups, strict=True))
    ]


def contests_of(systems: Sequence[System]) -> list[Contest]:
    """One for each test set. Systems whose references differ are never compared."""
    found: dict[tuple[Any, ...], list[tuple[System, list[Tested]]]] = {}
    for system in systems:
        by_set: dict[tuple[Any, ...], list[Tested]] = {}
        for run in system.runs:
            for test in run.tests:
                by_set.setdefault((test.languages, *test.references), []).append(test)
        for key, tests in by_set.items():
            found.setdefault(key, []).append((system, tests))
    return [_contest(entered) for entered in found.values()]


def _contest(entered: Sequence[tuple[System, list[Tested]]]) -> Contest:
    test = entered[0][1][0]
    mixed = len({len(tests) == 1 for _, tests in entered}) > 1
    if mixed:  # one seed says nothing about how seeds vary, so it cannot be compared with several
        entered = [(system, tests[:1]) for system, tests in entered]
    lines = {system.name: [each.hypotheses for each in tests] for system, tests in entered}
    if len(lines) == 1:
        ((name, runs),) = lines.items()
        rows = [measure(name, runs, test.references, tokenized=False)]
    else:
        rows = _corrected(compare(lines, test.references, tokenized=False))
    entries = [Entry(system, tests, row) for (system, tests), row in zip(entered, rows, strict=True)]
    return Contest(test.languages, test.sources, test.references, entries, mixed)


def _corrected(rows: Sequence[Comparison]) -> list[Comparison]:
    """With Holm's p-values: among many systems one is sure to look different."""
    first, *others = rows
    p_values = holm([row.p_value for row in others if row.p_value is not None])
    return [first, *(replace(row, p_value=p_value) for row, p_value in zip(others, p_values, strict=True))]


def _differ_in_seed_alone(run: TranslatorRun, group: Sequence[TranslatorRun]) -> bool:
    seeds = {other.recipe.training.seed for other in group}
    return run.recipe.training.seed not in seeds and _without_seed(run) == _without_seed(group[0])


def _without_seed(run: TranslatorRun) -> dict[str, Any]:
    return run.recipe.model_dump(exclude={"name": True, "training": {"seed"}})


def _names(groups: Sequence[Sequence[TranslatorRun]]) -> list[str]:
    """Of a system with several seeds what their names share: gl-en of gl-en-seed-1 and gl-en-seed-2, or else all."""
    found = []
    for group in groups:
        names = [run.name for run in group]
        stems = {re.sub(r"[-_./= ]*(seed)?[-_./= ]*\d+$", "", name) for name in names}
        found.append(stems.pop() if len(names) > 1 and len(stems) == 1 else ", ".join(names))
    return [
        name if name and found.count(name) == 1 else ", ".join(run.name for run in group)
        for name, group in zip(found, groups, strict=True)
    ]
