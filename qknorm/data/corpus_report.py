"""What is known about the text of a run: the file corpus.json."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from qknorm.data.jsonfiles import Stored
from qknorm.data.shifts import Shift


class DirectionReport(Stored):
    """What was read of the training text of a language pair, and what is left of it."""

    read: int
    kept: int
    words: int | None = None
    """Of both sides, of what was kept."""
    dropped: dict[str, int]
    """By reason."""
    split_off: dict[str, int] | None = None
    """For the sets that were not given: with those that were kept and dropped, all that were read. Earlier versions
    counted them as none of these."""
    left_out: dict[str, int] = Field({})
    """Of the sets that were given, pairs with a blank side."""
    near_copies: int | None = None
    """Pairs to learn from that share six words in a row with dev or test."""
    out_of_step: list[Shift] = Field([])
    """Stretches of lines of which one file lacks some."""
    longest_source: int | None = None
    """Pieces of the longest source sentence: what a model can be trusted to read. Earlier versions do not say."""


class CorpusReport(Stored):
    """The text of a translator."""

    indent: ClassVar[int | None] = 1

    pieces: int
    """Of the vocabulary."""
    rules: dict[str, Any] = Field({})
    """By which pairs were dropped."""
    pairs: list[DirectionReport]
    borrowed: list[DirectionReport] = Field([])
    """Of each text that is learned from beside them."""

    @property
    def texts(self) -> list[DirectionReport]:
        return [*self.pairs, *self.borrowed]


class TextReport(Stored):
    """The text of a language model."""

    characters: int
    lines: int
    sha256: str
