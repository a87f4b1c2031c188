"""Translations worth looking at: typical ones, the best, the worst, and where two systems differ most."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from statistics import fmean

from qknorm.evaluation.scores import sentence_chrf
from qknorm.experiments.report.contests import Contest, Entry

_SHOWN = 4
_WRITTEN_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


@dataclass(frozen=True)
class Word:
    """A stretch of a translation: a word, a punctuation mark or a space."""

    text: str
    not_in_reference: bool = False
    only_here: bool = False
    """The other system does not say it there."""


@dataclass(frozen=True)
class Translation:
    system: str
    number: int
    chrf: float
    words: list[Word]


@dataclass(frozen=True)
class Example:
    line: int
    source: str
    reference: str
    translations: list[Translation]


@dataclass(frozen=True)
class Examples:
    """Some examples with a common reason to be looked at."""

    title: str
    explanation: str
    chosen: list[Example]


def examples_of(contest: Contest) -> list[Examples]:
    """Of one system, or of the first beside the best of the others; the first seed speaks for a system."""
    first, *others = contest.entries
    shown = [first, max(others, key=lambda entry: entry.compared.bleu)] if others else [first]
    scores = [sentence_chrf(entry.tests[0].hypotheses, contest.references) for entry in shown]
    means = [fmean(each) for each in zip(*scores, strict=True)]

    def examples(rows: Sequence[int]) -> list[Example]:
        return [_example(contest, shown, [each[row] for each in scores], row) for row in rows]

    # Of equally good translations the longer ones say more.
    ranked = sorted(range(len(means)), key=lambda row: (-means[row], -len(contest.sources[row]), row))
    middle = max(0, len(ranked) // 2 - _SHOWN // 2)
    both = "Where both systems are" if others else "What is"
    found = [
        Examples("Typical", "Half of the test set is better than these, half is worse.",
                 examples(ranked[middle : middle + _SHOWN])),
        Examples("The best", f"{both} closest to the reference (longest sentences first).", examples(ranked[:_SHOWN])),
        Examples("The worst", f"{both} furthest from the reference.", examples(ranked[: -_SHOWN - 1 : -1])),
    ]  # fmt: skip
    if others:
        gains = [theirs - ours for ours, theirs in zip(*scores, strict=True)]
        by_gain = sorted(range(len(gains)), key=lambda row: (-gains[row], row))
        for entry, other, rows in (
            (shown[1], shown[0], [row for row in by_gain[:_SHOWN] if gains[row] > 0]),
            (shown[0], shown[1], [row for row in by_gain[: -_SHOWN - 1 : -1] if gains[row] < 0]),
        ):
            name, than = entry.system.name, other.system.name
            found.append(
                Examples(f"{name} does better", f"Where {name} is ahead of {than} by the most chrF.", examples(rows))
            )
    return [group for group in found if group.chosen]


def _example(contest: Contest, shown: Sequence[Entry], scores: Sequence[float], row: int) -> Example:
    hypotheses = [entry.tests[0].hypotheses[row] for entry in shown]
    return Example(
        row + 1,
        contest.sources[row],
        contest.references[row],
        [
            Translation(
                entry.system.name,
                entry.system.number,
                score,
                marked(hypotheses[place], contest.references[row], hypotheses[1 - place] if len(shown) == 2 else None),
            )
            for place, (entry, score) in enumerate(zip(shown, scores, strict=True))
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
    places = [place for place, text in enumerate(ours) if not text.isspace()]
    words = [ours[place] for place in places], [text for text in theirs if not text.isspace()]
    matched = SequenceMatcher(None, *words, autojunk=False).get_matching_blocks()
    found = {places[number] for block in matched for number in range(block.a, block.a + block.size)}
    return set(places) - found


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
    if unicodedata.category(character)[0] in "PS":
        return "sign"
    return "sign" if unicodedata.name(character, "").startswith(_WRITTEN_WITHOUT_SPACES) else "word"
