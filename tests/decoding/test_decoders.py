from __future__ import annotations

from typing import Any

import pytest

from qknorm.decoding.beam import BeamSettings
from qknorm.decoding.decoders import DECODERS, make_decoder
from qknorm.errors import InputError


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_needs_no_options(name: str) -> None:
    assert make_decoder(name, BeamSettings(), 1).width(1) >= 1


def test_greedy_search_is_a_beam_of_one() -> None:
    assert make_decoder("greedy", BeamSettings(beam_size=4), 1).width(1) == 1


def test_a_beam_grows_with_what_is_asked_of_it() -> None:
    assert make_decoder("beam", BeamSettings(beam_size=4), 7).width(7) == 7


@pytest.mark.parametrize(
    ("name", "n_best", "options", "message"),
    [
        ("bean", 1, {}, "there is no --decoder bean; choose one of beam, greedy, sampling"),
        ("greedy", 1, {"top_k": 5}, "--top-k does not go with --decoder greedy; it belongs to --decoder sampling"),
        ("beam", 3, {"beam_size": 2}, "--n-best 3 needs a --beam-size of at least 3"),
        ("greedy", 2, {}, "--n-best 2 needs"),
        ("sampling", 1, {"temperature": 0.0}, "--temperature must be above 0, not 0"),
    ],
)
def test_what_does_not_go_together_is_named(name: str, n_best: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_decoder(name, BeamSettings(), n_best, **options)
