"""The shape of a way to translate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.sentence import Sentence
from qknorm.models.ensemble import Stepwise
from qknorm.models.translator import Direction


class Decoder(ABC):
    """From the pieces of source sentences to hypotheses."""

    options: ClassVar[tuple[str, ...]]
    """What somebody may choose beside lengths."""

    @classmethod
    @abstractmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:
        """One for `n_best` hypotheses of a sentence; `settings` are the model's own, `options` what somebody chose."""

    @abstractmethod
    def width(self, sentence: Sentence) -> int:
        """How many hypotheses of a sentence are in memory at a time."""

    @abstractmethod
    def decode(self, model: Stepwise, sentences: Sequence[Sentence], direction: Direction) -> list[list[Hypothesis]]:
        """Of each sentence at most as many hypotheses as it wants."""
