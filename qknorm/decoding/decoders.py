"""Ways to translate, by the names that `qknorm translate --decoder` knows them by.

A new one is a class of this shape, in a file of its own if it is more than a few lines, and its line in the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from qknorm.decoding.beam import BeamSettings, Hypothesis, beam_search
from qknorm.decoding.sampling import SamplingSettings, sample
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.translator import Direction, TranslatorModel


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
    def decode(
        self, model: TranslatorModel, sentences: Sequence[Sentence], direction: Direction
    ) -> list[list[Hypothesis]]:
        """Of each sentence at most as many hypotheses as it wants."""


@dataclass(frozen=True)
class Beam(Decoder):
    """Searches for the best, with several hypotheses side by side."""

    options: ClassVar[tuple[str, ...]] = ("beam_size", "length_penalty")
    settings: BeamSettings

    @classmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:
        if options.setdefault("beam_size", max(settings.beam_size, n_best)) < n_best:
            raise InputError(f"the {n_best} best translations need a beam size of at least {n_best}")
        return cls(replace(settings, **options))

    def width(self, sentence: Sentence) -> int:  # noqa: ARG002
        return self.settings.beam_size

    def decode(
        self, model: TranslatorModel, sentences: Sequence[Sentence], direction: Direction
    ) -> list[list[Hypothesis]]:
        return beam_search(model, sentences, self.settings, direction)


@dataclass(frozen=True)
class Sampling(Decoder):
    """Draws at random."""

    options: ClassVar[tuple[str, ...]] = ("temperature", "top_k", "seed")
    lengths: BeamSettings
    """Of these, only the limits of lengths count."""
    sampling: SamplingSettings

    @classmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:  # noqa: ARG003
        sampling = SamplingSettings(**options)
        if not sampling.temperature > 0:
            raise InputError(
                f"temperature must be above 0, not {sampling.temperature:g}; "
                "a beam search with beam_size 1 takes the likeliest piece"
            )
        return cls(settings, sampling)

    def width(self, sentence: Sentence) -> int:
        return sentence.n

    def decode(
        self, model: TranslatorModel, sentences: Sequence[Sentence], direction: Direction
    ) -> list[list[Hypothesis]]:
        return sample(model, sentences, self.lengths, self.sampling, direction)


DECODERS: dict[str, type[Decoder]] = {"beam": Beam, "sampling": Sampling}


def make_decoder(name: str, settings: BeamSettings, n_best: int, **options: Any) -> Decoder:
    """A decoder by its name; an InputError for an option that belongs to another one."""
    if name not in DECODERS:
        raise InputError(f"there is no decoder {name}; choose one of {', '.join(DECODERS)}")
    for option in options:
        if option not in DECODERS[name].options:
            owners = [other for other, kind in DECODERS.items() if option in kind.options]
            raise InputError(
                f"{option.replace('_', ' ')} does not go with the decoder {name}, but with {' or '.join(owners)}"
            )
    return DECODERS[name].make(settings, n_best, **options)
