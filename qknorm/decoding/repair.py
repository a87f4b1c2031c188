"""A translation that lost or mixed up its signs gets them back: beside the words that translate their neighbours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from qknorm.data.placeholders import SIGN

Links = Sequence[tuple[int, int]]
"""Which word of the source, counted from 0, belongs to which of the target."""


def repaired(source: str, target: str, links: Links, is_ordered: Callable[[str], bool]) -> str:
    """The target with the signs of the source: as many, those that are ordered in the source's order.

    Where a word is linked to none, its place in the line has to do.
    """
    wanted = SIGN.findall(source)
    words = _without_surplus(target, Counter(wanted)).split(" ")
    missing = Counter(wanted) - Counter(SIGN.findall(target))
    reads = source.split()
    for row, word in enumerate(reads):
        for match in SIGN.finditer(word):
            if missing[match[0]] > 0:
                missing[match[0]] -= 1
                _insert(words, match, row, len(reads), links)
    return _apart(source, _in_order(" ".join(filter(None, words)), wanted, is_ordered))


def _without_surplus(target: str, wanted: Counter[str]) -> str:
    """Without the signs that the source has not, or not as often."""
    left = wanted.copy()

    def kept(match: re.Match[str]) -> str:
        left[match[0]] -= 1
        return match[0] if left[match[0]] >= 0 else ""

    return SIGN.sub(kept, target)


def _insert(words: list[str], sign: re.Match[str], row: int, count: int, links: Links) -> None:
    """Write a sign of the source's word number `row`, one of `count`: at the word it is glued to, or after the last."""
    opens, closes = (any(map(str.isalnum, part)) for part in (sign.string[sign.end() :], sign.string[: sign.start()]))
    if not opens and not closes:
        place = _places(words, row - 1, count, links)[-1] if row else 0
        words[place] = _after(words[place], f" {sign[0]}") if row else f"{sign[0]} {words[place]}".rstrip()
    elif closes:
        place = _places(words, row, count, links)[-1]
        words[place] = _after(words[place], sign[0])
    else:
        place = _places(words, row, count, links)[0]
        words[place] = re.sub(r"^(\W*)", rf"\1{sign[0]}", words[place], count=1)


def _places(words: Sequence[str], row: int, count: int, links: Links) -> list[int]:
    """The words that are linked to that of the source, or else the one at its place in the line."""
    linked = sorted(place for other, place in links if other == row and place < len(words))
    return linked or [min(round(row * len(words) / count), len(words) - 1)]


def _after(word: str, sign: str) -> str:
    """After the last letter or sign of a word, before the full stop that it may have."""
    ends = [match.end() for match in re.finditer(rf"\w|{SIGN.pattern}", word)]
    end = ends[-1] if ends else len(word)
    return word[:end] + sign + word[end:]


def _apart(source: str, target: str) -> str:
    """With a space between a sign and a letter or sign that do not touch in the source."""
    any_sign = SIGN.pattern
    for sign in dict.fromkeys(SIGN.findall(target)):
        for side in (rf"(?<=\w)(?={sign})", rf"(?<={sign})(?=\w)"):
            if not re.search(side, source):
                target = re.sub(side, " ", target)
    for pair in set(re.findall(rf"(?=({any_sign}{any_sign}))", target)):
        target = target if pair in source else target.replace(pair, " ".join(pair))
    return target


def _in_order(target: str, wanted: Sequence[str], is_ordered: Callable[[str], bool]) -> str:
    signs = filter(is_ordered, wanted)
    return SIGN.sub(lambda match: next(signs) if is_ordered(match[0]) else match[0], target)
