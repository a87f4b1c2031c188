from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.decoders import DECODERS, Beam, make_decoder
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from tests.journeys.conftest import Command, command

__all__ = ["command"]


class Echo(Beam):
    """Says what it has read; a decoder from outside of the package."""

    def decode(self, _model: object, sentences: Sequence[Sentence], _direction: object) -> list[list[Hypothesis]]:
        return [[Hypothesis([*sentence.pieces], 0.0, [])] for sentence in sentences]


def test_a_new_decoder_is_a_class_and_its_line_in_the_table(
    command: Command, trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DECODERS, "echo", Echo)
    done = command("translate", str(trained_run), "--decoder", "echo", stdin=b"The house is red.\n\n")
    assert done.out == "The house is red.\n\n", done.errors


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_needs_no_options(name: str) -> None:
    """A beam grows with what is asked of it."""
    assert make_decoder(name, BeamSettings(beam_size=4), 7).width(Sentence([], 7)) == 7


@pytest.mark.parametrize(
    ("name", "n_best", "options", "message"),
    [
        ("bean", 1, {}, "there is no decoder bean; choose one of beam, sampling"),
        ("beam", 1, {"top_k": 5}, "top k does not go with the decoder beam, but with sampling"),
        ("beam", 3, {"beam_size": 2}, "the 3 best translations need a beam size of at least 3"),
        ("sampling", 1, {"temperature": 0.0}, "temperature must be above 0, not 0"),
    ],
)
def test_what_does_not_go_together_is_named(name: str, n_best: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_decoder(name, BeamSettings(), n_best, **options)
