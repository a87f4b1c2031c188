"""Ways to translate, by their names.

A new one is a `Decoder`, in a file of its own if it is more than a few lines, and its line in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from qknorm.decoding.beam import BeamSettings, Hypothesis, beam_search
from qknorm.decoding.decoder import Decoder
from qknorm.decoding.sampling import Sampling
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.ensemble import Stepwise
from qknorm.models.translator import Direction


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

    def decode(self, model: Stepwise, sentences: Sequence[Sentence], direction: Direction) -> list[list[Hypothesis]]:
        return beam_search(model, sentences, self.settings, direction)


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
