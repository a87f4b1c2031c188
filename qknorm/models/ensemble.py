"""Several translators that say one thing, piece by piece as one of them does; and what a search asks of either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from qknorm.models.translator import DecodingState, Direction, TranslatorModel


class Growing(Protocol):
    """What is kept between two pieces, of however many models."""

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        """Let row i continue what row rows[i] was; it belongs to sentences[i]."""

    def keep_sentences(self, sentences: Tensor) -> None:
        """Go on with these sentences only."""


class Stepwise(Protocol):
    """A model as a search sees it: it reads sentences once, then says how likely each next piece is."""

    @property
    def languages(self) -> Tensor:
        """Weights, by whose device and type a search computes."""

    @property
    def directions(self) -> Sequence[Direction]:
        """The language pairs that it translates."""

    def target_vocabulary(self, direction: Direction) -> Tensor:
        """The numbers of the pieces that a target may have, in ascending order."""

    def start(self, source: Tensor, direction: Direction, beams: int = 1) -> Growing:
        """Read the source sentences (batch, length), each with `beams` rows side by side."""

    def step(self, pieces: Tensor, state: Any) -> Tensor:
        """Add one more piece after `pieces` (rows,): logits over the target vocabulary."""


@dataclass
class _Growing:
    """That of each model, and where the pieces that it may say are among those of all."""

    states: list[DecodingState]
    places: list[Tensor]
    pieces: int

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        for state in self.states:
            state.reorder(rows, sentences)

    def keep_sentences(self, sentences: Tensor) -> None:
        for state in self.states:
            state.keep_sentences(sentences)


class Ensemble:
    """Models of one vocabulary, by the mean of their probabilities at each piece. In eval mode, on one device."""

    def __init__(self, models: Sequence[TranslatorModel]) -> None:
        self._models = models
        self._by_name = [{direction.name: direction for direction in model.directions} for model in models]

    @property
    def languages(self) -> Tensor:
        """Those of the first model."""
        return self._models[0].languages

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The first model's, as far as the others have them, too."""
        ways = self._models[0].directions
        return tuple(way for way in ways if all(way.name in names for names in self._by_name))

    def target_vocabulary(self, direction: Direction) -> Tensor:
        """What any of the models may say."""
        return torch.bincount(torch.cat(self._vocabularies(direction))).nonzero().squeeze(1)

    def start(self, source: Tensor, direction: Direction, beams: int = 1) -> _Growing:
        own = zip(self._models, self._directions(direction), strict=True)
        everything = self.target_vocabulary(direction)
        places = [torch.searchsorted(everything, vocabulary) for vocabulary in self._vocabularies(direction)]
        return _Growing([model.start(source, way, beams) for model, way in own], places, len(everything))

    def step(self, pieces: Tensor, state: _Growing) -> Tensor:
        """The logarithm of the sum of their probabilities: a softmax makes the mean of it."""
        told = [model.step(pieces, own).log_softmax(-1) for model, own in zip(self._models, state.states, strict=True)]
        spread = [
            one.new_full((len(one), state.pieces), -torch.inf).index_copy_(1, places, one)
            for one, places in zip(told, state.places, strict=True)
        ]
        return torch.stack(spread).logsumexp(0)

    def _directions(self, direction: Direction) -> list[Direction]:
        return [names[direction.name] for names in self._by_name]

    def _vocabularies(self, direction: Direction) -> list[Tensor]:
        own = zip(self._models, self._directions(direction), strict=True)
        return [model.target_vocabulary(way) for model, way in own]
