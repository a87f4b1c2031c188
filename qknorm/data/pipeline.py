"""What is done to a line before a model reads it, and taken back in what the model writes of it.

A model is given lines as those that it learned from: its run says by which steps. A step may leave a mark about a line,
such as what it put a placeholder for, by which it finds its way back.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from qknorm.errors import InputError

Mark = Any
"""What a step notes about a line; only this step reads it."""


class Step(Protocol):
    """One thing that is done to a line, and how it is taken back."""

    def before(self, line: str) -> tuple[str, Mark]:
        """The line as a model reads it, and what `after` has to know."""
        ...

    def after(self, line: str, mark: Mark) -> str:
        """What a model has written of a line that had this mark, as people read it."""
        ...


class Tidy:
    """Text in one way; what is written of tidy text is tidy by itself."""

    def before(self, line: str) -> tuple[str, Mark]:
        return tidy(line), None

    def after(self, line: str, mark: Mark) -> str:  # noqa: ARG002
        return line


def tidy(line: str) -> str:
    """In NFC, with single ordinary spaces between words and none at the ends.

    What nobody sees, such as a no-break space, would be another piece to a translator.
    """
    return " ".join(unicodedata.normalize("NFC", line).split())


STEPS: Mapping[str, Step] = {"tidy": Tidy()}
"""By their names: a new step is a class and its line here."""


class TextPipeline:
    """Steps, one after the other, and back in the other order. Without any, lines stay as they are."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        if unknown := [name for name in names if name not in STEPS]:
            raise InputError(f"no step of text is called {unknown[0]!r}; there are: {', '.join(STEPS)}")
        self.names = tuple(names)

    def before(self, line: str) -> tuple[str, list[Mark]]:
        """A line as a model reads it, and a mark of each step."""
        marks = []
        for name in self.names:
            line, mark = STEPS[name].before(line)
            marks.append(mark)
        return line, marks

    def after(self, line: str, marks: Sequence[Mark]) -> str:
        """What a model has written of a line with these marks, as people read it."""
        for name, mark in reversed(list(zip(self.names, marks, strict=True))):
            line = STEPS[name].after(line, mark)
        return line
