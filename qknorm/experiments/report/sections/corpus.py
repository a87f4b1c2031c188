"""What was read, what was dropped and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from qknorm.experiments.report.collect import Dropped
from qknorm.experiments.report.contests import Material, System
from qknorm.experiments.report.section import Section

_REASONS = {
    "duplicate": "the same pair stands earlier in the text",
    "also in dev or test": "the pair is also in the dev or test set, where it would be known by heart",
    "source equals target": "both sides are the same: it was not translated",
    "lengths too different": "one side is more than six times as long as the other",
    "too long": "a side has more than 2,000 characters: a paragraph that nobody split",
    "control character": "there are characters in it that no text should have",
    "source blank": "the source is blank",
    "target blank": "the translation is blank",
    "both sides blank": "both sides are blank",
}


@dataclass(frozen=True)
class Cleaning:
    """A language pair of a corpus: what was dropped, why, and some examples."""

    languages: str
    read: int
    kept: int
    reasons: list[tuple[str, int, str, list[Dropped]]]

    @property
    def dropped(self) -> int:
        return sum(count for _, count, *_ in self.reasons)

    @property
    def set_aside(self) -> int:
        """Of the pairs that were read; none where dev and test sets were given."""
        return self.read - self.kept - self.dropped


@dataclass(frozen=True)
class CorpusSummary:
    used_by: str
    pieces: int
    directions: list[Cleaning]


@dataclass(frozen=True)
class CorpusSection(Section):
    corpora: list[CorpusSummary]
    title = "Corpus"

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        return [cls(_corpora(material.systems))] if material.systems else []


def _corpora(systems: Sequence[System]) -> list[CorpusSummary]:
    """Each different corpus once."""
    by_corpus: dict[str, list[System]] = {}
    for system in systems:
        languages = [direction.languages for direction in system.first.recipe.data.directions]
        by_corpus.setdefault(f"{languages} {system.first.corpus.model_dump_json()}", []).append(system)
    return [_corpus_summary(users) for users in by_corpus.values()]


def _corpus_summary(users: Sequence[System]) -> CorpusSummary:
    run = users[0].first
    corpus = run.corpus
    directions = []
    for direction, about, examples in zip(run.recipe.data.directions, corpus.pairs, run.dropped, strict=True):
        reasons = [
            (reason, count, _REASONS.get(reason, ""), [pair for pair in examples if pair.reason == reason])
            for reason, count in sorted(about.dropped.items(), key=lambda item: (-item[1], item[0]))
        ]
        directions.append(Cleaning(" → ".join(direction.languages), about.read, about.kept, reasons))
    return CorpusSummary(", ".join(system.name for system in users), corpus.pieces, directions)
