from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from qknorm.data.subwords import BOS, EOS
from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.sampling import Sampling
from qknorm.decoding.sentence import Sentence
from qknorm.models.translator import TranslatorModel
from tests.decoding.test_beam import SOURCES, found, log_probability, translator

__all__ = ["translator"]

LENGTHS = BeamSettings(extra_length=8)
SENTENCES = [Sentence(source, key=key) for source, key in zip(SOURCES, "1234", strict=True)]


def drawn(
    translator: TranslatorModel, sampling: Sampling, sentences: list[Sentence] = SENTENCES
) -> list[list[Hypothesis]]:
    return sampling.decode(translator, sentences, translator.directions[0])


def pieces(hypotheses: list[list[Hypothesis]]) -> list[list[int]]:
    return [hypothesis.pieces for (hypothesis,) in hypotheses]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_pieces_are_drawn_by_their_probability(translator: TranslatorModel, temperature: float) -> None:
    draws, (direction,) = 4000, translator.directions
    sampling, sentence = Sampling(BeamSettings(max_length=1), temperature), Sentence(SOURCES[0], n=draws)
    (actual,) = sampling.decode(translator, [sentence], direction)
    counts = Counter(hypothesis.pieces[0] if hypothesis.pieces else EOS for hypothesis in actual)
    with torch.inference_mode():
        state = translator.start(torch.tensor([[*SOURCES[0], EOS]]), direction)
        expected = (translator.step(torch.tensor([BOS]), state)[0] / temperature).softmax(0)
    for piece, probability in zip(translator.target_vocabulary(direction).tolist(), expected.tolist(), strict=True):
        spread = (draws * probability * (1 - probability)) ** 0.5
        assert abs(counts[piece] - draws * probability) <= 4 * spread + 1


def test_scores_are_those_of_the_model(translator: TranslatorModel) -> None:
    result = drawn(translator, Sampling(LENGTHS, temperature=2.0, top_k=10))
    for source, (hypothesis,) in zip(SOURCES, result, strict=True):
        expected = log_probability(translator, source, hypothesis.pieces)
        assert sum(hypothesis.piece_scores) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("sampling", [Sampling(LENGTHS, top_k=1), Sampling(LENGTHS, temperature=1e-4)], ids=str)
def test_without_chance_the_likeliest_piece_is_drawn(translator: TranslatorModel, sampling: Sampling) -> None:
    greedy = found(translator, BeamSettings(beam_size=1, extra_length=8))
    assert pieces(drawn(translator, sampling)) == pieces(greedy)


def test_a_sample_depends_on_its_seed_and_key_and_not_on_its_batch(translator: TranslatorModel) -> None:
    sampling = Sampling(LENGTHS, seed=5)
    together = pieces(drawn(translator, sampling))
    assert [pieces(drawn(translator, sampling, [sentence]))[0] for sentence in SENTENCES] == together
    assert pieces(drawn(translator, sampling, SENTENCES[::-1]))[::-1] == together
    others = [replace(sentence, key=sentence.key * 2) for sentence in SENTENCES]
    assert pieces(drawn(translator, sampling, others)) != together
    assert pieces(drawn(translator, Sampling(LENGTHS, seed=6))) != together
