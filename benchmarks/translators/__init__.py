"""The translators that are measured, each behind the same calls: `update` learns, `translate` and `forced` decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qknorm.models.translator import TranslatorConfig

Pieces = list[int]
SHAPE = ("dim", "feed_forward", "encoder_layers", "decoder_layers", "heads")


@dataclass(frozen=True)
class Sentences:
    """Sentence pairs in pieces, without BOS and EOS, and which pieces a target may have."""

    sources: list[Pieces]
    targets: list[Pieces]
    vocabulary: int
    target_vocabulary: list[int]


@dataclass(frozen=True)
class Size(TranslatorConfig):
    """What all translators have in common; a batch has at most `budget` positions on its longer side."""

    word_dropout: float = 0.1
    budget: int = 2048

    @classmethod
    def of(cls, model: Any) -> Size:
        """The size that another translator must have to be compared with one of this configuration."""
        return cls(**{name: getattr(model, name) for name in SHAPE})

    @property
    def shape(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in SHAPE}


class Learner(Protocol):
    """A translator in training."""

    def update(self) -> int:
        """One update of the optimiser over one batch; the number of target pieces, EOS included, it was made of."""
        ...


class Decoder(Protocol):
    """A trained translator."""

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        """The best translation of each source, by a beam of 4, all in one batch."""
        ...
