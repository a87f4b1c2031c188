from __future__ import annotations

from collections import Counter

import pytest
import torch

from qknorm.data.subwords import BOS, EOS
from qknorm.decoding.beam import BeamSettings, beam_search
from qknorm.decoding.sampling import SamplingSettings, sample
from qknorm.models.translator import TranslatorModel
from tests.decoding.test_beam import SOURCES, log_probability, translator

__all__ = ["translator"]

KEYS = ["1", "2", "3", "4"]
LENGTHS = BeamSettings(extra_length=8)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_pieces_are_drawn_by_their_probability(translator: TranslatorModel, temperature: float) -> None:
    draws = 4000
    settings = SamplingSettings(temperature=temperature)
    actual = sample(
        translator, [SOURCES[0]] * draws, [str(i) for i in range(draws)], BeamSettings(max_length=1), settings
    )
    counts = Counter(hypothesis.pieces[0] if hypothesis.pieces else EOS for (hypothesis,) in actual)
    with torch.inference_mode():
        state = translator.start(torch.tensor([[*SOURCES[0], EOS]]), 0)
        expected = (translator.step(torch.tensor([BOS]), 0, state)[0] / temperature).softmax(0)
    for piece, probability in zip(translator.target_vocabulary(0).tolist(), expected.tolist(), strict=True):
        spread = (draws * probability * (1 - probability)) ** 0.5
        assert abs(counts[piece] - draws * probability) <= 4 * spread + 1


def test_scores_are_those_of_the_model(translator: TranslatorModel) -> None:
    settings = SamplingSettings(temperature=2.0, top_k=10)
    for source, (drawn,) in zip(SOURCES, sample(translator, SOURCES, KEYS, LENGTHS, settings), strict=True):
        assert sum(drawn.piece_scores) == pytest.approx(log_probability(translator, source, drawn.pieces), abs=1e-4)


@pytest.mark.parametrize("settings", [SamplingSettings(top_k=1), SamplingSettings(temperature=1e-4)], ids=str)
def test_without_chance_the_likeliest_piece_is_drawn(translator: TranslatorModel, settings: SamplingSettings) -> None:
    greedy = beam_search(translator, SOURCES, BeamSettings(beam_size=1, extra_length=8))
    drawn = sample(translator, SOURCES, KEYS, LENGTHS, settings)
    assert [best.pieces for (best,) in drawn] == [best.pieces for (best,) in greedy]


def test_a_sample_depends_on_its_seed_and_key_and_not_on_its_batch(translator: TranslatorModel) -> None:
    settings = SamplingSettings(seed=5)
    together = sample(translator, SOURCES, KEYS, LENGTHS, settings)
    for place in range(4):
        (alone,) = sample(translator, [SOURCES[place]], [KEYS[place]], LENGTHS, settings)
        assert alone[0].pieces == together[place][0].pieces
    backwards = sample(translator, SOURCES[::-1], KEYS[::-1], LENGTHS, settings)[::-1]
    assert [best.pieces for (best,) in backwards] == [best.pieces for (best,) in together]
    for other in (
        sample(translator, SOURCES, KEYS[::-1], LENGTHS, settings),
        sample(translator, SOURCES, KEYS, LENGTHS, SamplingSettings(seed=6)),
    ):
        assert [best.pieces for (best,) in other] != [best.pieces for (best,) in together]
