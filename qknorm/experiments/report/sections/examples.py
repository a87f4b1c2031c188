"""Translations worth looking at: typical ones, the best, the worst, and where two systems differ most."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from statistics import fmean
from typing import Self

from qknorm.evaluation.scores import sentence_chrf
from qknorm.experiments.report.contests import Material, Participant, SharedTest
from qknorm.experiments.report.section import Section
from qknorm.metrics.script import is_spaceless

_SHOWN = 4


@dataclass(frozen=True)
class Word:
    """A stretch of a translation: a word, a punctuation mark or a space."""

    text: str
    not_in_reference: bool = False
    only_here: bool = False
    """The other system does not say it there."""


@dataclass(frozen=True)
class ShownTranslation:
    system: str
    number: int
    chrf: float
    words: list[Word]


@dataclass(frozen=True)
class Example:
    line: int
    source: str
    reference: str
    translations: list[ShownTranslation]


@dataclass(frozen=True)
class Chosen:
    """Some examples with a common reason to be looked at."""

    title: str
    explanation: str
    examples: list[Example]


@dataclass(frozen=True)
class ExamplesSection(Section):
    by_test_set: list[tuple[str, list[Chosen]]]
    several_systems: bool
    title = "Examples"

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        by_test_set = [(test_set.title, _groups(test_set)) for test_set in material.test_sets]
        return [cls(by_test_set, len(material.systems) > 1)] if by_test_set else []


def _groups(test_set: SharedTest) -> list[Chosen]:
    """Of one system, or of the first beside the best of the others; the first seed speaks for a system."""
    first, *others = test_set.participants
    compared = [first, max(others, key=lambda participant: participant.mean("bleu"))] if others else [first]
    scores = [sentence_chrf(entry.tests[0].hypotheses, test_set.references) for entry in compared]
    means = [fmean(of_row) for of_row in zip(*scores, strict=True)]

    def examples(rows: Sequence[int]) -> list[Example]:
        return [_example(test_set, compared, [of_system[row] for of_system in scores], row) for row in rows]

    # Of equally good translations the longer ones say more.
    ranked = sorted(range(len(means)), key=lambda row: (-means[row], -len(test_set.sources[row]), row))
    middle = max(0, len(ranked) // 2 - _SHOWN // 2)
    both = "Where both systems are" if others else "What is"
    groups = [
        Chosen("Typical", "Half of the test set is better than these, half is worse.",
                 examples(ranked[middle : middle + _SHOWN])),
        Chosen("The best", f"{both} closest to the reference (longest sentences first).", examples(ranked[:_SHOWN])),
        Chosen("The worst", f"{both} furthest from the reference.", examples(ranked[: -_SHOWN - 1 : -1])),
    ]  # fmt: skip
    if others:
        gains = [theirs - ours for ours, theirs in zip(*scores, strict=True)]
        by_gain = sorted(range(len(gains)), key=lambda row: (-gains[row], row))
        for entry, other, rows in (
            (compared[1], compared[0], [row for row in by_gain[:_SHOWN] if gains[row] > 0]),
            (compared[0], compared[1], [row for row in by_gain[: -_SHOWN - 1 : -1] if gains[row] < 0]),
        ):
            name, than = entry.system.name, other.system.name
            groups.append(
                Chosen(f"{name} does better", f"Where {name} is ahead of {than} by the most chrF.", examples(rows))
            )
    return [group for group in groups if group.examples]


def _example(test_set: SharedTest, compared: Sequence[Participant], scores: Sequence[float], row: int) -> Example:
    hypotheses, reference = [entry.tests[0].hypotheses[row] for entry in compared], test_set.references[row]
    return Example(
        row + 1,
        test_set.sources[row],
        reference,
        [
            ShownTranslation(
                entry.system.name,
                entry.system.number,
                score,
                marked(hypotheses[place], reference, hypotheses[1 - place] if len(compared) == 2 else None),
            )
            for place, (entry, score) in enumerate(zip(compared, scores, strict=True))
        ],
    )


def marked(hypothesis: str, reference: str, other: str | None) -> list[Word]:
    """The words of a translation, and which of them stand neither in the reference nor in the other translation."""
    stretches = list(_stretches(hypothesis))
    new = _unmatched(stretches, list(_stretches(reference)))
    only = _unmatched(stretches, list(_stretches(other))) if other is not None else set()
    return [Word(text, place in new, place in only) for place, text in enumerate(stretches)]


def _unmatched(ours: Sequence[str], theirs: Sequence[str]) -> set[int]:
    """The places of words that have no counterpart in the same order; spaces are nobody's words."""
    positions = [position for position, text in enumerate(ours) if not text.isspace()]
    words = [ours[position] for position in positions], [text for text in theirs if not text.isspace()]
    matched = SequenceMatcher(None, *words, autojunk=False).get_matching_blocks()
    matching = {positions[number] for block in matched for number in range(block.a, block.a + block.size)}
    return set(positions) - matching


def _stretches(text: str) -> Iterator[str]:
    """Words, spaces, and single signs; where a script has no spaces, single characters."""
    for kind, characters in groupby(text, _kind):
        if kind == "sign":
            yield from characters
        else:
            yield "".join(characters)


def _kind(character: str) -> str:
    if character.isspace():
        return "space"
    if unicodedata.category(character)[0] in "PS" or is_spaceless(character):
        return "sign"
    return "word"
