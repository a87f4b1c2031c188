"""Placeholders, tags and terms: a model reads a sign in place of each, copies it, and the sign is taken back.

The signs of a line are numbered in the order in which its strings occur first; the same string has the same sign.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from qknorm.data.glossary import Glossary
from qknorm.data.subwords import SIGNS
from qknorm.errors import InputError

SIGN = re.compile(f"[{SIGNS[0]}-{SIGNS[-1]}]")
_TAG = r"</?(?:[^\W\d_][\w:.-]*|\d+)(?:\s[^<>]*)?/?>"
# Of a link, what is a character, and what may be its last: an entity and {id} are parts of it, a full stop is not.
_WHOLE = r"&\w+;|\{\{[^{}]*\}\}|\{[^{}\s]*\}"
_LINK = rf"(?:https?://|\bwww\.)(?:{_WHOLE}|&(?!\w+;)|[^\s<>\"\\{{}}&])*(?:{_WHOLE}|[^\s<>\"\\{{}}&'.,;:!?()\[\]])"
_MAIL = r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_PRINTF = r"%(?:\(\w+\)|\d+\$)?[-+#]*\d*(?:\.\d+)?(?:hh?|ll?|[Lzjt])?[sdiuoxXeEfgGcp@]"
# 100%s may have a placeholder, 100%solid has none.
_PRINTF = rf"(?<!\d){_PRINTF}|{_PRINTF}(?!\w)|%%"
_BRACES = r"\$?\{\{[^{}]*\}\}|\$?\{[\w.:,!$#%+-]*\}"
_ESCAPE = r"\\[nrt]"
_ENTITY = r"&(?:#\d+|#x[\da-fA-F]+|[a-zA-Z]\w+);"
_UNITS = (
    "%|‰|°C|°F|°|[kMGT]?i?B|[kMG]?bps|[kcmµn]?m|[kmµ]?g|[mcdh]?l|[kMG]?Hz|[kM]?Wh?|[kmµ]?V|m?A|[mµn]s|min|h|px|pt|em|dpi"
    "|fps"
)
_UNIT = rf"(?<![\w.,])\d+(?:[.,\u00a0\u202f]\d+)*[ \u00a0\u202f]?(?:{_UNITS}|[€$£¥])(?!\w)|[€$£¥] ?\d+(?:[.,]\d+)*"
# Of these, the order matters, too: a program fills them in one after the other.
_ORDERED = re.compile(rf"{_TAG}|%(?!%|\(|\d+\$).*|\{{\}}", re.DOTALL)
_WORD = re.compile(r"\w+(?:[.,]\d+)*")
# So that a model learns to copy signs from any text: the share of pairs in which it is shown with names and numbers.
_SHARE_DRAWN = 1 / 3
_LEARNED = 6  # signs with which a line may begin then, so that not only the first is learned

Find = Callable[[str], Iterable[tuple[int, int]]]


class Span(NamedTuple):
    """Where something of a line stands that is to be kept."""

    start: int
    end: int
    kind: str


def matches(pattern: str) -> Find:
    """Where a pattern matches, if it is a regular expression; matches of nothing are none."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"{pattern!r} is not a regular expression: {error}") from None
    return lambda line: (match.span() for match in compiled.finditer(line) if match[0])


_CODES = {"sign": matches(SIGN.pattern), "tag": matches(_TAG), "link": matches(_LINK)}
_CODES |= {"code": matches("|".join((_PRINTF, _BRACES, _ESCAPE))), "mail": matches(_MAIL)}
_ENTITIES, _NUMBERS = {"entity": matches(_ENTITY)}, {"unit": matches(_UNIT)}


def is_placeholder(text: str) -> bool:
    """Whether a text consists of placeholders and tags alone."""
    covered = sum(end - start for start, end, _ in _spans(text, _CODES | _ENTITIES))
    return bool(text) and covered == len(text)


def _spans(line: str, finders: Mapping[str, Find]) -> list[Span]:
    """What is found in a line, in its order; where an earlier finder has found something, others see a gap."""
    spans: list[Span] = []
    left = line
    for kind, find in finders.items():
        for start, end in find(left):
            if "\n" not in left[start:end]:
                left = left[:start] + "\n" * (end - start) + left[end:]
                spans.append(Span(start, end, kind))
    return sorted(spans)


def _names_and_numbers(line: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _WORD.finditer(line) if match[0][0].isupper() or match[0][0].isdigit())


@dataclass(frozen=True)
class Keep:
    """The step of a text pipeline that puts signs in the place of what is to be kept."""

    has_entities: bool = True
    """Whether `&amp;` is code; in text with Moses' escapes it is how a sign is written."""
    patterns: Sequence[str] = ()
    """Regular expressions of what is to be kept, too."""
    terms: Glossary = field(default_factory=Glossary)
    """What is replaced by its translation."""

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            matches(pattern)  # which refuses what is none

    @cached_property
    def finders(self) -> dict[str, Find]:
        """All but terms."""
        own = {f"own {pattern}": matches(pattern) for pattern in self.patterns}
        return {"sign": _CODES["sign"]} | own | _CODES | (_ENTITIES if self.has_entities else {}) | _NUMBERS

    def before(self, line: str) -> tuple[str, Kept]:
        """A line with signs, and what they stand for."""
        spans = _spans(line, self.finders | {"term": self.terms.find})
        meanings = {
            line[start:end]: self.terms.translation(line[start:end]) if kind == "term" else line[start:end]
            for start, end, kind in spans
        }
        strings = tuple(meanings.values())[: len(SIGNS)]
        terms = frozenset(line[start:end] for start, end, kind in spans if kind == "term")
        signs = dict(zip(meanings, SIGNS, strict=False))
        of_terms = frozenset(sign for text, sign in signs.items() if text in terms)
        return _with_signs(line, spans, signs), Kept(self, strings, of_terms, line.strip()[:1].isupper())

    def after(self, line: str, mark: Kept) -> str:
        """A line with what its signs stand for."""
        return mark.restored(line)

    def together(self, source: str, target: str, is_learned: bool) -> tuple[str, str]:
        """Two lines that translate each other, with signs for what stands as often in both.

        In some pairs that are learned these are names and numbers, too.
        """
        drawn = random.Random(f"{source}\n{target}")
        finders, first = self.finders, 0
        if is_learned:
            first = drawn.choice((0, drawn.randrange(_LEARNED)))
            finders = finders | ({"copy": _names_and_numbers} if drawn.random() < _SHARE_DRAWN else {})
        found = [(line, _spans(line, finders)) for line in (source, target)]
        counts, others = (Counter(line[start:end] for start, end, _ in spans) for line, spans in found)
        common = [text for text, count in counts.items() if others[text] == count]
        order = (SIGNS[first:_LEARNED] + SIGNS[:first] + SIGNS[_LEARNED:]) if first else SIGNS
        signs = dict(zip(common, order, strict=False))
        source, target = (_with_signs(line, spans, signs) for line, spans in found)
        return source, target


def _with_signs(line: str, spans: Sequence[Span], signs: Mapping[str, str]) -> str:
    parts, end = [], 0
    for span in spans:
        text = line[span.start : span.end]
        parts += [line[end : span.start], signs.get(text, text)]
        end = span.end
    return "".join([*parts, line[end:]])


@dataclass(frozen=True)
class Kept:
    """What the signs of a line stand for."""

    keep: Keep
    strings: tuple[str, ...]
    terms: frozenset[str]
    """The signs among them that stand for terms."""
    is_capital: bool = False
    """Whether the line begins with a capital."""

    def restored(self, text: str) -> str:
        """A text with signs as people read it. A sign that the line does not have vanishes."""
        restored = SIGN.sub(lambda sign: self._string(sign[0]), text)
        if self.is_capital and text[:1] in self.terms:
            return restored[0].upper() + restored[1:]
        return restored

    def hidden(self, text: str, source: str) -> str:
        """A translation with signs where what the source has signs for is spelled out."""
        signs = dict(zip(self.strings, SIGNS, strict=False))
        text = _with_signs(text, _spans(text, self.keep.finders), signs)
        for sign in sorted(self.terms, key=lambda sign: len(self._string(sign)), reverse=True):
            missing = max(source.count(sign) - text.count(sign), 0)
            spelled = rf"(?<!\w){re.escape(self._string(sign))}(?!\w)"
            text = re.sub(spelled, sign, text, count=missing, flags=re.IGNORECASE) if missing else text
        return text

    def without_others(self, text: str) -> str:
        """A translation without what looks like a placeholder and is none of the line."""
        strange = [span for span in _spans(text, self.keep.finders) if span.kind not in ("sign", "unit")]
        return _with_signs(text, strange, {text[start:end]: "" for start, end, _ in strange})

    def _string(self, sign: str) -> str:
        number = SIGNS.index(sign)
        return self.strings[number] if number < len(self.strings) else ""

    def is_ordered(self, sign: str) -> bool:
        """Whether its place among others matters: of tags, and of what is filled in one after the other."""
        return sign not in self.terms and _is_ordered(self._string(sign))

    def fits(self, source: str, target: str) -> bool:
        """Whether a translation has all that is to be kept as the source has it, and nothing else that looks so."""
        wanted = Counter(self._string(sign).lower() for sign in SIGN.findall(source) if sign in self.terms)
        is_own = all(map(self._string, SIGN.findall(target)))
        source, target = self.restored(source), self.restored(target)
        mine, its = (self._found(text) for text in (source, target))
        lacks, more = Counter(mine) - Counter(its), Counter(its) - Counter(mine)
        in_order = [text for text, _ in mine if _is_ordered(text)] == [text for text, _ in its if _is_ordered(text)]
        fits = is_own and in_order and not lacks and all(kind == "unit" for _, kind in more)
        return fits and _has_terms(target.lower(), wanted)

    def _found(self, text: str) -> list[tuple[str, str]]:
        return [(text[start:end], kind) for start, end, kind in _spans(text, self.keep.finders)]


def _has_terms(text: str, wanted: Counter[str]) -> bool:
    """Whether all of them are there side by side: one inside of a longer one is part of that."""
    for term in sorted(wanted, key=len, reverse=True):
        if text.count(term) < wanted[term]:
            return False
        text = text.replace(term, "\n", wanted[term])
    return True


def _is_ordered(text: str) -> bool:
    return _ORDERED.fullmatch(text) is not None
