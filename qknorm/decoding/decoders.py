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
from qknorm.errors import InputError
from qknorm.models.translator import TranslatorModel


class Decoder(ABC):
    """From the pieces of source sentences to hypotheses."""

    options: ClassVar[tuple[str, ...]]
    """What somebody may choose beside lengths."""

    @classmethod
    @abstractmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:
        """One for `n_best` hypotheses of a sentence; `settings` are the model's own, `options` what somebody chose."""

    @abstractmethod
    def width(self, n_best: int) -> int:
        """How many hypotheses of a sentence are in memory at a time."""

    @abstractmethod
    def decode(
        self,
        model: TranslatorModel,
        sources: Sequence[Sequence[int]],
        keys: Sequence[str],
        direction: int,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        """Of each sentence at most `n_best` hypotheses. A key is what a sentence's random numbers depend on."""


@dataclass(frozen=True)
class Beam(Decoder):
    """Searches for the best, with several hypotheses side by side."""

    options: ClassVar[tuple[str, ...]] = ("beam_size", "length_penalty")
    settings: BeamSettings

    @classmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:
        if options.setdefault("beam_size", max(settings.beam_size, n_best)) < n_best:
            raise InputError(f"--n-best {n_best} needs a --beam-size of at least {n_best}")
        return cls(replace(settings, **options))

    def width(self, n_best: int) -> int:  # noqa: ARG002
        return self.settings.beam_size

    def decode(
        self,
        model: TranslatorModel,
        sources: Sequence[Sequence[int]],
        keys: Sequence[str],  # noqa: ARG002
        direction: int,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        return beam_search(model, sources, self.settings, direction, n_best)


class Greedy(Beam):
    """Takes the likeliest piece each time: a beam of one."""

    options: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:
        return super().make(settings, n_best, beam_size=1, **options)


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
                f"--temperature must be above 0, not {sampling.temperature:g}; "
                "--decoder greedy takes the likeliest piece"
            )
        return cls(settings, sampling)

    def width(self, n_best: int) -> int:
        return n_best

    def decode(
        self,
        model: TranslatorModel,
        sources: Sequence[Sequence[int]],
        keys: Sequence[str],
        direction: int,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        numbered = [(row, number) for row in range(len(sources)) for number in range(n_best)]
        drawn = sample(
            model,
            [sources[row] for row, _ in numbered],
            [f"{keys[row]} {number}" for row, number in numbered],
            self.lengths,
            self.sampling,
            direction,
        )
        hypotheses = [hypothesis for (hypothesis,) in drawn]
        return [hypotheses[row * n_best : (row + 1) * n_best] for row in range(len(sources))]


DECODERS: dict[str, type[Decoder]] = {"beam": Beam, "greedy": Greedy, "sampling": Sampling}


def make_decoder(name: str, settings: BeamSettings, n_best: int, **options: Any) -> Decoder:
    """A decoder by its name; an InputError for an option that belongs to another one."""
    if name not in DECODERS:
        raise InputError(f"there is no --decoder {name}; choose one of {', '.join(DECODERS)}")
    for option in options:
        if option not in DECODERS[name].options:
            owners = [f"--decoder {other}" for other, kind in DECODERS.items() if option in kind.options]
            flag = f"--{option.replace('_', '-')}"
            raise InputError(f"{flag} does not go with --decoder {name}; it belongs to {' or '.join(owners)}")
    return DECODERS[name].make(settings, n_best, **options)
