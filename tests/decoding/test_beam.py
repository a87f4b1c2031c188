from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from qknorm.data.subwords import BOS, EOS
from qknorm.decoding.beam import BeamSettings, Hypothesis, Search, beam_search
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.ensemble import Stepwise
from qknorm.models.translator import TranslatorModel
from tests.models.test_translator import model

SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [14, 15]]


def found(translator: Stepwise, settings: BeamSettings, sources: list[list[int]] = SOURCES) -> list[list[Hypothesis]]:
    """The whole beam of each source."""
    sentences = [Sentence(source, settings.beam_size) for source in sources]
    return beam_search(translator, sentences, settings, translator.directions[0])


@torch.inference_mode()
def search_of(translator: TranslatorModel, settings: BeamSettings) -> tuple[Search, int]:
    """A search for the best of each source that has come to its end, and after how many steps."""
    search, steps = Search(translator, [*map(Sentence, SOURCES)], settings, translator.directions[0]), 0
    while len(search.active):
        search.extend()
        search.collect_finished()
        steps += 1
    return search, steps


@pytest.fixture(scope="module")
def translator() -> TranslatorModel:
    """Sharp enough for translations to differ in length."""
    made = model().eval()
    with torch.no_grad():
        made.embedding.output_bias.copy_(torch.randn(30))
        made.embedding.output_bias[EOS] = 2.5
    return made


def log_probability(translator: TranslatorModel, source: list[int], pieces: list[int]) -> float:
    """Of a whole translation, EOS included, by the model alone."""
    return log_probabilities(translator, source, [pieces])[0]


@torch.inference_mode()
def log_probabilities(translator: TranslatorModel, source: list[int], translations: list[list[int]]) -> list[float]:
    """The same of several translations of one length."""
    classes, rows = translator.get_buffer("class_of_piece_0"), torch.arange(len(translations))
    total = torch.zeros(len(translations))
    state = translator.start(torch.tensor([[*source, EOS]]), translator.directions[0], beams=len(translations))
    whole = torch.tensor([[BOS, *pieces, EOS] for pieces in translations]).T
    for last, following in itertools.pairwise(whole):
        total += translator.step(last, state).log_softmax(1)[rows, classes[following]]
    probabilities: list[float] = total.tolist()
    return probabilities


def penalty(length: int, exponent: float = 0.6) -> float:
    return math.pow((5 + length) / 6, exponent)


@pytest.mark.parametrize("beam_size", [1, 3, 6])
def test_scores_are_those_of_the_model(translator: TranslatorModel, beam_size: int) -> None:
    settings = BeamSettings(beam_size=beam_size, extra_length=6)
    for source, hypotheses in zip(SOURCES, found(translator, settings), strict=True):
        assert len(hypotheses) == beam_size
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            expected = log_probability(translator, source, hypothesis.pieces)
            assert sum(hypothesis.piece_scores) == pytest.approx(expected, abs=1e-4)
            assert hypothesis.score == pytest.approx(expected / penalty(len(hypothesis.pieces) + 1), abs=1e-4)


def test_a_wide_beam_finds_the_best_of_all(translator: TranslatorModel) -> None:
    """All translations of up to two pieces against a beam that can hold them."""
    settings = BeamSettings(beam_size=27 * 28, extra_length=1)
    (result,) = found(translator, settings, [SOURCES[1]])
    vocabulary = [piece for piece in translator.target_vocabulary(translator.directions[0]).tolist() if piece != EOS]
    scores: list[tuple[float, list[int]]] = []
    for length in range(3):
        everything = [list(pieces) for pieces in itertools.product(vocabulary, repeat=length)]
        probabilities = log_probabilities(translator, SOURCES[1], everything)
        scores += [
            (value / penalty(length + 1), pieces) for value, pieces in zip(probabilities, everything, strict=True)
        ]
    assert len(scores) == 1 + 26 + 26**2
    best, pieces = max(scores)
    assert result[0].pieces == pieces
    assert result[0].score == pytest.approx(best, abs=1e-4)


def same(first: list[Hypothesis], second: list[Hypothesis]) -> bool:
    return [h.pieces for h in first] == [h.pieces for h in second]


@hypothesis_settings(max_examples=12)
@given(st.lists(st.lists(st.integers(4, 28), min_size=1, max_size=12), min_size=2, max_size=6), st.sampled_from([1, 3]))
def test_padding_never_leaks(sources: list[list[int]], beam_size: int) -> None:
    """In double precision, where rounding is far below the tolerance: the same scores in any company."""
    translator = model().double().eval()
    settings = BeamSettings(beam_size=beam_size, extra_length=5)
    together = found(translator, settings, sources)
    for source, hypotheses in zip(sources, together, strict=True):
        (alone,) = found(translator, settings, [source])
        assert same(alone, hypotheses)
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-9)


def test_a_decision_of_rounding_is_made_as_if_alone(translator: TranslatorModel) -> None:
    """Two pieces that the model cannot tell apart: whichever is said, it is the same in any company."""
    twins = copy.deepcopy(translator)
    with torch.no_grad():
        twins.embedding.weight[21] = twins.embedding.weight[20] * (1 + 1e-6)
        twins.embedding.output_bias[20] = twins.embedding.output_bias[21] = 5.0
    settings = BeamSettings(beam_size=2, extra_length=8)
    assert search_of(translator, settings)[0].close_calls == []
    assert sorted(search_of(twins, settings)[0].close_calls) == [0, 1, 2, 3]
    for source, together in zip(SOURCES, found(twins, settings), strict=True):
        assert found(twins, settings, [source]) == [together]


@pytest.mark.parametrize("length_penalty", [-0.5, 0.0, 0.6, 2.0])
def test_ending_early_changes_none_of_the_best(translator: TranslatorModel, length_penalty: float) -> None:
    settings = BeamSettings(extra_length=12, length_penalty=length_penalty)
    everything = found(translator, settings)
    for wanted in ([1, 1, 1, 1], [3, 1, 4, 2]):
        early = beam_search(translator, [*map(Sentence, SOURCES, wanted)], settings, translator.directions[0])
        for best, n, all_of_it in zip(early, wanted, everything, strict=True):
            assert same(best, all_of_it[:n])


def test_a_search_ends_when_its_best_cannot_be_overtaken(translator: TranslatorModel) -> None:
    eager = copy.deepcopy(translator)
    with torch.no_grad():
        eager.embedding.output_bias[EOS] = 12.0
    assert search_of(eager, BeamSettings(extra_length=50))[1] <= 3


def test_lengths_are_kept(translator: TranslatorModel) -> None:
    for hypotheses in found(translator, BeamSettings(extra_length=2, min_length=2)):
        assert all(len(hypothesis.pieces) >= 2 for hypothesis in hypotheses)
    for source, hypotheses in zip(SOURCES, found(translator, BeamSettings(extra_length=2)), strict=True):
        assert all(len(hypothesis.pieces) <= len(source) + 2 for hypothesis in hypotheses)
    for hypotheses in found(translator, BeamSettings(max_length=1)):
        assert all(len(hypothesis.pieces) <= 1 for hypothesis in hypotheses)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_model_that_diverged_is_one_sentence(beam_size: int) -> None:
    broken = model().eval()
    with torch.no_grad():
        broken.embedding.output_bias.fill_(math.nan)
    with pytest.raises(InputError, match="the model's output is not a number"):
        found(broken, BeamSettings(beam_size))
