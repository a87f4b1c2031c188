from __future__ import annotations

from typing import Any

import pytest

from qknorm.decoding.beam import BeamSettings
from qknorm.decoding.decoders import DECODERS, make_decoder
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError


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
