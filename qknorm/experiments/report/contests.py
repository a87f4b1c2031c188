"""Who is compared with whom: seeds become one system, and systems meet in tables or on the test sets they share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from qknorm.evaluation.significance import Comparison, standings
from qknorm.experiments.papers import plan as papers
from qknorm.experiments.papers.plan import Experiment
from qknorm.experiments.papers.results import Row, planned_for, rate_caveats, result_of
from qknorm.experiments.report.collect import Tested, TrainedTranslator
from qknorm.metrics.table import is_too_short_for_bleu


@dataclass(frozen=True)
class System:
    """A translator: one run, or several that differ in nothing but their seed."""

    number: int
    """Its place among all systems, by which it has its looks in every chart."""
    name: str
    runs: list[TrainedTranslator]

    @property
    def first(self) -> TrainedTranslator:
        return self.runs[0]


@dataclass(frozen=True)
class Participant:
    """A system on a test set: one test for each seed."""

    system: System
    tests: list[Tested]

    @property
    def bleu(self) -> float:
        return fmean(test.scores.bleu for test in self.tests)


@dataclass(frozen=True)
class TestSet:
    """Sentences, and the systems that were tested on them."""

    __test__ = False  # it is none of pytest's

    languages: tuple[str, str]
    sources: list[str]
    references: list[str]
    participants: list[Participant]

    @property
    def title(self) -> str:
        return f"{self.languages[0]} → {self.languages[1]}, {len(self.references):,} sentences"


@dataclass(frozen=True)
class Entry:
    """A system in a contest: one test for each seed that is compared."""

    system: System
    tests: list[Tested]
    compared: Comparison
    published: Row | None = None
    """Its row in the table of an experiment."""

    @property
    def chrf(self) -> float:
        return fmean(test.scores.chrf for test in self.tests)

    @property
    def ter(self) -> float:
        return fmean(test.scores.ter for test in self.tests)


@dataclass(frozen=True)
class Contest:
    """Systems on a test set; the first is what the others are compared with."""

    title: str
    sentences: int
    entries: list[Entry]
    as_tokens: bool = False
    """BLEU is that of tokens, not of the text."""
    experiment: Experiment | None = None
    """The one whose table this is; without it, the systems of a folder are compared among themselves."""
    caveats: Sequence[str] = ()
    """What is said against its runs."""
    plan: str = ""
    """What was planned for its runs, where minutes decide it."""

    @property
    def rows(self) -> list[Comparison]:
        return [entry.compared for entry in self.entries]

    @property
    def references(self) -> list[str]:
        return self.entries[0].tests[0].references

    @property
    def is_too_short(self) -> bool:
        """BLEU says nothing about its lines."""
        return is_too_short_for_bleu(self.references)

    @property
    def best(self) -> Entry:
        """By BLEU or, where that says nothing, by chrF."""
        by_chrf = self.is_too_short
        return max(self.entries, key=lambda entry: entry.chrf if by_chrf else entry.compared.bleu)


def systems_of(runs: Sequence[TrainedTranslator]) -> list[System]:
    """Those with plain attention first: they are what normalisation is compared with."""
    groups: list[list[TrainedTranslator]] = []
    for run in sorted(runs, key=lambda run: run.recipe.model.qk_norm.kind != "none"):
        for group in groups:
            if _differ_in_seed_alone(run, group):
                group.append(run)
                break
        else:
            groups.append([run])
    return [
        System(number, name, group) for number, (name, group) in enumerate(zip(_names(groups), groups, strict=True))
    ]


def test_sets_of(systems: Sequence[System]) -> list[TestSet]:
    """Whoever was tested on the same sentences, together. Systems whose references differ are never compared."""
    test_sets: dict[tuple[Any, ...], TestSet] = {}
    for system in systems:
        by_set: dict[tuple[Any, ...], list[Tested]] = {}
        for run in system.runs:
            for test in run.tests:
                by_set.setdefault((test.languages, *test.references), []).append(test)
        for key, tests in by_set.items():
            empty = TestSet(tests[0].languages, tests[0].sources, tests[0].references, [])
            test_sets.setdefault(key, empty).participants.append(Participant(system, tests))
    return list(test_sets.values())


def contests_of(systems: Sequence[System], experiments: Sequence[tuple[Experiment, Path]] = ()) -> list[Contest]:
    """The tables of experiments, each as it was written; then, by test set, the systems that stand in none of them."""
    tables, inside = [], set[Path]()
    for experiment, folder in experiments:
        for contest in experiment.contests:
            if table := _of_experiment(experiment, contest, folder, systems):
                tables.append(table)
                inside |= {run for entrant in contest.entrants for run in entrant.trained(folder)}
    others = [system for system in systems if inside.isdisjoint(run.folder for run in system.runs)]
    return [*tables, *map(_among_themselves, test_sets_of(others))]


def _among_themselves(test_set: TestSet) -> Contest:
    participants = test_set.participants
    lines = {entrant.system.name: [test.hypotheses for test in entrant.tests] for entrant in participants}
    rows = standings(lines, test_set.references, tokenized=False)
    entries = [
        Entry(entrant.system, entrant.tests[: row.seeds], row) for entrant, row in zip(participants, rows, strict=True)
    ]
    return Contest(test_set.title, len(test_set.references), entries)


def _of_experiment(
    experiment: Experiment, contest: papers.Contest, folder: Path, systems: Sequence[System]
) -> Contest | None:
    """What the table says on one corpus; None where it has not begun, or some of its runs lie outside of the report."""
    owners = {run.folder: (system, run) for system in systems for run in system.runs}
    done = {experiment.row(entrant).title: entrant.done(folder) for entrant in contest.entrants}
    if experiment.table.shows != "bleu" or not any(done.values()):
        return None
    if not {run for runs in done.values() for run in runs} <= owners.keys():
        return None
    result = result_of(experiment, contest, folder)
    published = {row.system: row for row in result.rows}
    entries = []
    for row in result.compared:
        runs = [owners[run] for run in done[row.name][: row.seeds]]
        entries.append(Entry(runs[0][0], [run.tests[0] for _, run in runs], row, published[row.name]))
    title, as_tokens = f"{experiment.table.title}, {contest.title}", experiment.as_tokens(contest)
    sentences = len(entries[0].tests[0].references)
    caveats = rate_caveats(experiment, contest, folder)
    return Contest(title, sentences, entries, as_tokens, experiment, caveats, planned_for(contest, folder))


def _differ_in_seed_alone(run: TrainedTranslator, group: Sequence[TrainedTranslator]) -> bool:
    seeds = {other.recipe.training.seed for other in group}
    return run.recipe.training.seed not in seeds and _without_seed(run) == _without_seed(group[0])


def _without_seed(run: TrainedTranslator) -> dict[str, Any]:
    return run.recipe.model_dump(exclude={"name": True, "training": {"seed"}})


def _names(groups: Sequence[Sequence[TrainedTranslator]]) -> list[str]:
    """Of a system with several seeds what their names share: gl-en of gl-en-seed-1 and gl-en-seed-2, or else all."""
    shared = []
    for group in groups:
        names = [run.name for run in group]
        stems = {re.sub(r"[-_./= ]*(seed)?[-_./= ]*\d+$", "", name) for name in names}
        shared.append(stems.pop() if len(names) > 1 and len(stems) == 1 else ", ".join(names))
    return [
        name if name and shared.count(name) == 1 else ", ".join(run.name for run in group)
        for name, group in zip(shared, groups, strict=True)
    ]
