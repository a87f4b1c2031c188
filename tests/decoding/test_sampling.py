from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from qknorm.data.subwords import BOS, EOS
from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.sampling import SamplingSettings, sample
from qknorm.decoding.sentence import Sentence
from qknorm.models.translator import TranslatorModel
from tests.decoding.test_beam import SOURCES, found, log_probability, translator

__all__ = ["translator"]

LENGTHS = BeamSettings(extra_length=8)
SENTENCES = [Sentence(source, key=key) for source, key in zip(SOURCES, "1234", strict=True)]


def drawn(
    translator: TranslatorModel, settings: SamplingSettings, sentences: list[Sentence] = SENTENCES
) -> list[list[Hypothesis]]:
    return sample(translator, sentences, LENGTHS, settings, translator.directions[0])


def pieces(hypotheses: list[list[Hypothesis]]) -> list[list[int]]:
    return [hypothesis.pieces for (hypothesis,) in hypotheses]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_pieces_are_drawn_by_their_probability(translator: TranslatorModel, temperature: float) -> None:
    draws, (direction,) = 4000, translator.directions
    settings, sentence = SamplingSettings(temperature=temperature), Sentence(SOURCES[0], n=draws)
    (actual,) = sample(translator, [sentence], BeamSettings(max_length=1), settings, direction)
    counts = Counter(hypothesis.pieces[0] if hypothesis.pieces else EOS for hypothesis in actual)
    with torch.inference_mode():
        state = translator.start(torch.tensor([[*SOURCES[0], EOS]]), direction)
        expected = (translator.step(torch.tensor([BOS]), state)[0] / temperature).softmax(0)
    for piece, probability in zip(translator.target_vocabulary(direction).tolist(), expected.tolist(), strict=True):
        spread = (draws * probability * (1 - probability)) ** 0.5
        assert abs(counts[piece] - draws * probability) <= 4 * spread + 1


def test_scores_are_those_of_the_model(translator: TranslatorModel) -> None:
    result = drawn(translator, SamplingSettings(temperature=2.0, top_k=10))
    for source, (hypothesis,) in zip(SOURCES, result, strict=True):
        expected = log_probability(translator, source, hypothesis.pieces)
        assert sum(hypothesis.piece_scores) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("settings", [SamplingSettings(top_k=1), SamplingSettings(temperature=1e-4)], ids=str)
def test_without_chance_the_likeliest_piece_is_drawn(translator: TranslatorModel, settings: SamplingSettings) -> None:
    greedy = found(translator, BeamSettings(beam_size=1, extra_length=8))
    assert pieces(drawn(translator, settings)) == pieces(greedy)


def test_a_sample_depends_on_its_seed_and_key_and_not_on_its_batch(translator: TranslatorModel) -> None:
    settings = SamplingSettings(seed=5)
    together = pieces(drawn(translator, settings))
    assert [pieces(drawn(translator, settings, [sentence]))[0] for sentence in SENTENCES] == together
    assert pieces(drawn(translator, settings, SENTENCES[::-1]))[::-1] == together
    others = [replace(sentence, key=sentence.key * 2) for sentence in SENTENCES]
    assert pieces(drawn(translator, settings, others)) != together
    assert pieces(drawn(translator, SamplingSettings(seed=6))) != together
