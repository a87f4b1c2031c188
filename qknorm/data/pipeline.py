"""What is done to a line before a model reads it, and taken back in what the model writes of it.

A model is given lines as those that it learned from: its run says by which steps. A step may leave a mark about a line,
such as what it put a placeholder for, by which it finds its way back.
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from qknorm.data.glossary import Glossary
from qknorm.data.placeholders import Keep, Kept
from qknorm.errors import InputError

Mark = Any
"""What a step notes about a line; only this step reads it."""
_NO_BREAK = "\u00a0\u202f"


class Step(Protocol):
    """One thing that is done to a line, and how it is taken back."""

    def before(self, line: str) -> tuple[str, Mark]:
        """The line as a model reads it, and what `after` has to know."""
        ...

    def after(self, line: str, mark: Mark) -> str:
        """What a model has written of a line that had this mark, as people read it."""
        ...


class _Spaces(NamedTuple):
    """White space that a line had and a model does not see."""

    first: str
    last: str
    inside: list[tuple[str, str, str]]
    """No-break spaces with the words beside them."""


class Tidy:
    """Text in one way. White space around a line comes back, and no-break spaces where their words stand again."""

    def before(self, line: str) -> tuple[str, _Spaces]:
        start, end = len(line) - len(line.lstrip()), len(line.rstrip())
        return tidy(line), _Spaces(line[:start], line[end:], _no_break_spaces(line) if start < end else [])

    def after(self, line: str, mark: _Spaces) -> str:
        for left, space, right in mark.inside:
            alone = [f" {right}"] * (not _has_letters(right)) + [f"{left} "] * (not _has_letters(left))
            found = next((text for text in (f"{left} {right}", *alone) if text in line), None)
            line = line.replace(found, found.replace(" ", space), 1) if found else line
        return f"{mark.first}{line}{mark.last}" if line else line


def _no_break_spaces(line: str) -> list[tuple[str, str, str]]:
    words = [(word.start(), word.end(), tidy(word[0])) for word in re.finditer(r"\S+", line)]
    return [
        (left, space, right)
        for (_, end, left), (start, _, right) in pairwise(words)
        if (space := line[end:start]) in _NO_BREAK
    ]


def _has_letters(word: str) -> bool:
    return any(map(str.isalpha, word))


def tidy(line: str) -> str:
    """In NFC, with single ordinary spaces between words and none at the ends.

    What nobody sees, such as a no-break space, would be another piece to a translator.
    """
    return " ".join(unicodedata.normalize("NFC", line).split())


STEPS: Mapping[str, Step] = {"tidy": Tidy(), "keep": Keep(), "keep in tokens": Keep(has_entities=False)}
"""By their names: a new step is a class and its line here."""


class TextPipeline:
    """Steps, one after the other, and back in the other order. Without any, lines stay as they are.

    patterns: regular expressions of what is to be kept, beside those that are known.
    """

    def __init__(self, names: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        if unknown := [name for name in names if name not in STEPS]:
            raise InputError(f"no step of text is called {unknown[0]!r}; there are: {', '.join(STEPS)}")
        self.key = (*names, *patterns)
        """What tells it from others."""
        self._steps = [STEPS[name] for name in names]
        if patterns:
            self._steps = [replace(step, patterns=patterns) if isinstance(step, Keep) else step for step in self._steps]

    @property
    def keeps(self) -> bool:
        """Whether a model learned to copy signs."""
        return any(isinstance(step, Keep) for step in self._steps)

    def keeping(self, patterns: Sequence[str] = (), terms: Glossary | None = None) -> TextPipeline:
        """The same with more that is kept, and with terms."""
        other = copy.copy(self)
        other._steps = [
            replace(step, patterns=(*step.patterns, *patterns), terms=terms or step.terms)
            if isinstance(step, Keep)
            else step
            for step in self._steps
        ]
        return other

    def before(self, line: str) -> tuple[str, list[Mark]]:
        """A line as a model reads it, and a mark of each step."""
        marks = []
        for step in self._steps:
            line, mark = step.before(line)
            marks.append(mark)
        return line, marks

    def after(self, line: str, marks: Sequence[Mark]) -> str:
        """What a model has written of a line with these marks, as people read it."""
        for step, mark in reversed(list(zip(self._steps, marks, strict=True))):
            line = step.after(line, mark)
        return line

    def written(self, line: str) -> str:
        """A line as sets hold it that people read: in one way, with all that is kept."""
        for step in self._steps:
            line = line if isinstance(step, Keep) else step.before(line)[0]
        return line

    def together(self, source: str, target: str, is_learned: bool = False) -> tuple[str, str]:
        """Two written lines that translate each other, as a model reads them."""
        for step in self._steps:
            source, target = step.together(source, target, is_learned) if isinstance(step, Keep) else (source, target)
        return source, target


def kept_of(marks: Sequence[Mark]) -> Kept | None:
    """What is kept of a line with these marks, if there is something."""
    return next((mark for mark in marks if isinstance(mark, Kept) and mark.strings), None)
