"""Lines that are longer than what a model was trained on: cut where it hurts least, joined again when translated."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from qknorm.data.sentences import sentences

_CLAUSE_END = re.compile(r"[,;:—–،؛]\s+|[、，；：]\s*")
_SPACE = re.compile(r"\s+")
_NO_SPACE_AFTER = "。！？、，；：」』）】"


def split_line(line: str, fits: Callable[[str], bool]) -> tuple[list[str], bool]:
    """The sentences of a line that does not fit, and whether all of them do.

    One that does not is halved again and again: after a clause, else at a space, else between two characters.
    """
    parts = sentences(line)
    whole = all(map(fits, parts))
    return parts if whole else [piece for part in parts for piece in _halved(part, fits)], whole


def join_parts(translations: Sequence[str]) -> str:
    """The translations of a line's parts as one line."""
    joined: list[str] = []
    for text in filter(None, translations):
        if joined and joined[-1][-1] not in _NO_SPACE_AFTER:
            joined.append(" ")
        joined.append(text)
    return "".join(joined)


def _halved(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    if len(sentence) == 1 or fits(sentence):
        return [sentence]
    place = _cut(sentence)
    halves = sentence[:place].strip(), sentence[place:].strip()
    return [part for half in halves if half for part in _halved(half, fits)]


def _cut(sentence: str) -> int:
    """The best place near the middle."""
    middle = len(sentence) // 2
    for pattern in (_CLAUSE_END, _SPACE):
        cuts = (match.end() for match in pattern.finditer(sentence))
        nearest = min(cuts, key=lambda cut: abs(cut - middle), default=0)
        if abs(nearest - middle) <= middle // 2:
            return nearest
    return middle
