"""What the sections of a report draw from: the runs, the systems they are, and how these compare.

Seeds become one system, and systems meet in tables or on the test sets they share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from qknorm.evaluation.significance import Comparison
from qknorm.experiments.citations import in_words
from qknorm.experiments.compare import Compared, compared, compared_contest
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.page import setting
from qknorm.experiments.report.collect import Collection, Tested, TrainedTranslator
from qknorm.experiments.results import CorpusRows, load_outcomes
from qknorm.experiments.results import contests_of as rows_by_corpus
from qknorm.experiments.tuning import caveats_of, planned_for
from qknorm.experiments.views.scores import Row, how_scored, rows_of


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

    def mean(self, score: str) -> float:
        return fmean(getattr(test.scores, score) for test in self.tests)


@dataclass(frozen=True)
class SharedTest:
    """Sentences, and the systems that were tested on them."""

    languages: tuple[str, str]
    sources: list[str]
    references: list[str]
    participants: list[Participant]

    @property
    def title(self) -> str:
        return f"{self.languages[0]} → {self.languages[1]}, {len(self.references):,} sentences"


@dataclass(frozen=True)
class Entry(Participant):
    """The same in a contest, with the seeds that are compared."""

    compared: Comparison
    published: Row | None = None
    """Its row in the table of an experiment."""


@dataclass(frozen=True)
class Contest:
    """Systems on a test set; the first is what the others are compared with."""

    title: str
    entries: list[Entry]
    compared: Compared
    as_tokens: bool = False
    """BLEU is that of tokens, not of the text."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Of the table of an experiment what is said of it; otherwise systems of a folder are compared among themselves."""

    @property
    def references(self) -> list[str]:
        return self.entries[0].tests[0].references

    @property
    def best(self) -> Entry:
        """By BLEU or, where that says nothing, by chrF."""
        by_chrf = self.compared.is_too_short
        return max(self.entries, key=lambda entry: entry.mean("chrf") if by_chrf else entry.compared.bleu)


@dataclass(frozen=True)
class Material:
    """Everything that was found and computed once."""

    collection: Collection
    systems: list[System]
    """Translators."""
    test_sets: list[SharedTest]
    contests: list[Contest]


def material_of(collection: Collection) -> Material:
    systems = systems_of(collection.translators)
    return Material(collection, systems, test_sets_of(systems), contests_of(systems, collection.experiments))


def systems_of(runs: Sequence[TrainedTranslator]) -> list[System]:
    """Those with plain attention first: they are what normalisation is compared with."""
    groups, copies = dict[tuple[str, int], list[TrainedTranslator]](), Counter[str]()
    for run in sorted(runs, key=lambda run: run.recipe.model.qk_norm.kind != "none"):
        alike = run.recipe.model_dump_json(exclude={"name": True, "training": {"seed"}})
        with_seed = f"{alike} {run.recipe.training.seed}"
        groups.setdefault((alike, copies[with_seed]), []).append(run)  # a seed stands but once in a system
        copies[with_seed] += 1
    names = _names(list(groups.values()))
    return [System(number, *named) for number, named in enumerate(zip(names, groups.values(), strict=True))]


def test_sets_of(systems: Sequence[System]) -> list[SharedTest]:
    """Whoever was tested on the same sentences, together. Systems whose references differ are never compared."""
    test_sets: dict[tuple[Any, ...], SharedTest] = {}
    for system in systems:
        by_set: dict[tuple[Any, ...], list[Tested]] = {}
        for run in system.runs:
            for test in run.tests:
                by_set.setdefault((test.languages, *test.references), []).append(test)
        for key, tests in by_set.items():
            empty = SharedTest(tests[0].languages, tests[0].sources, tests[0].references, [])
            test_sets.setdefault(key, empty).participants.append(Participant(system, tests))
    return list(test_sets.values())


def contests_of(systems: Sequence[System], experiments: Sequence[tuple[Experiment, Path]] = ()) -> list[Contest]:
    """The tables of experiments, each as it was written; then, by test set, the systems that stand in none of them."""
    tables, inside = [], set[Path]()
    for experiment, folder in experiments:
        for rows in rows_by_corpus(experiment, load_outcomes(experiment, folder)):
            if table := _of_experiment(experiment, rows, folder, systems):
                tables.append(table)
                inside |= {run.folder for entrant in rows.entrants for run in entrant.trained}
    others = [system for system in systems if inside.isdisjoint(run.folder for run in system.runs)]
    return [*tables, *map(_among_themselves, test_sets_of(others))]


def _among_themselves(test_set: SharedTest) -> Contest:
    participants = test_set.participants
    lines = {entrant.system.name: [test.hypotheses for test in entrant.tests] for entrant in participants}
    found = compared(lines, test_set.references)
    entries = [
        Entry(entrant.system, entrant.tests[: row.seeds], row)
        for entrant, row in zip(participants, found.rows, strict=True)
    ]
    return Contest(test_set.title, entries, found)


def _of_experiment(experiment: Experiment, rows: CorpusRows, folder: Path, systems: Sequence[System]) -> Contest | None:
    """What the table says on one corpus; None where it has not begun, or some of its runs lie outside of the report."""
    owners = {run.folder: (system, run) for system in systems for run in system.runs}
    done = {label: [run.folder for run in runs] for label, runs in rows.done.items()}
    is_whole = {run for runs in done.values() for run in runs} <= owners.keys()
    if experiment.about.shows not in (None, "scores") or not done or not is_whole:
        return None
    found = compared_contest(experiment, rows)
    published = {row.system: row for row in rows_of(experiment, rows, found)}
    entries = []
    for row in found.rows:
        runs = [owners[run] for run in done[row.name][: row.seeds]]
        entries.append(Entry(runs[0][0], [run.tests[0] for _, run in runs], row, published[row.name]))
    about, plan = experiment.about, planned_for(experiment, rows.corpus, folder)
    as_tokens = experiment.as_tokens(rows.corpus)
    said = {
        "Question": about.question,
        "Setting": " ".join([*setting(experiment), f"Test BLEU is {how_scored(as_tokens)}.", plan]).strip(),
        "Caveat": " ".join(filter(None, [about.caveat, *caveats_of(rows)])),
        "Source": in_words(about.paper),
    }
    return Contest(f"{about.title}, {rows.title}", entries, found, as_tokens, said)


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
