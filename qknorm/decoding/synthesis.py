"""Translations that a model is to learn from: back-translations, or what a teacher says, if they are plausible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qknorm.data.cleaning import dropped_row
from qknorm.data.importers import Pair
from qknorm.data.textfiles import replacing
from qknorm.decoding.translator import Translation, Translator

KEPT = "kept"
"""What is counted of lines whose translation is plausible."""
_LONGER, _AT_LEAST = 3, 10  # times as many words as the line, of translations of at least this many words
_ROW, _REPEATED = 3, 3  # words in a row that stand this often in a translation: the model went round in circles


@dataclass(frozen=True)
class Synthetic:
    """A line, what a model made of it, and why nobody should learn from that, if there is a reason."""

    line: str
    translation: Translation
    reason: str | None


def synthesize(translator: Translator, lines: Iterable[str]) -> Iterator[Synthetic]:
    """Yield what becomes of each line, in bounded memory."""
    for best, *_ in translator.translations(lines):
        yield Synthetic(best.source, best, _reason_to_drop(best.source, best.text))


def write(made: Iterable[Synthetic], lines: Path, translations: Path, dropped: Path) -> Counter[str]:
    """Keep lines and their translations side by side, and what is implausible with its reason; returns how many."""
    counts = Counter[str]()
    with replacing(translations) as here, replacing(lines) as there, replacing(dropped) as left_out:
        left_out.write(b"line\treason\tsource\ttarget\n")
        for number, one in enumerate(made, start=1):
            counts[one.reason or KEPT] += 1
            if one.reason is not None:
                left_out.write(dropped_row(number, one.reason, Pair(one.line, one.translation.text)))
                continue
            there.write(one.line.encode() + b"\n")
            here.write(one.translation.text.encode() + b"\n")
    return counts


def _reason_to_drop(line: str, translation: str) -> str | None:
    words, made = line.split(), translation.split()
    if not made:
        return "empty"
    longer, shorter = max(len(words), len(made)), min(len(words), len(made))
    if longer >= _AT_LEAST and longer > _LONGER * shorter:
        return "lengths too different"
    if line == translation:
        return "a copy"
    rows = Counter(tuple(made[start : start + _ROW]) for start in range(len(made) - _ROW + 1))
    if max(rows.values(), default=0) >= _REPEATED:
        return "repeats itself"
    return None
