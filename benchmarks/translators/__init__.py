"""The translators that are measured, each behind the same calls: `update` learns, `translate` and `forced` decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Pieces = list[int]


@dataclass(frozen=True)
class Sentences:
    """Sentence pairs in pieces, without BOS and EOS, and which pieces a target may have."""

    sources: list[Pieces]
    targets: list[Pieces]
    vocabulary: int
    target_vocabulary: list[int]


@dataclass(frozen=True)
class Size:
    """What all translators have in common."""

    dim: int = 256
    feed_forward: int = 1024
    encoder_layers: int = 4
    decoder_layers: int = 4
    heads: int = 4
    dropout: float = 0.3
    label_smoothing: float = 0.1
    word_dropout: float = 0.1
    budget: int = 2048
    """A batch has at most this many positions on its longer side."""


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
