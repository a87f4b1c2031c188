from __future__ import annotations

import itertools

import pytest
import torch

from qknorm.data.subwords import BOS, EOS, PAD
from qknorm.decoding.beam import BeamSettings
from qknorm.decoding.sampling import Sampling
from qknorm.decoding.sentence import Sentence
from qknorm.models.ensemble import Ensemble, Stepwise
from qknorm.models.translator import TranslatorModel
from tests.decoding.test_beam import SOURCES, found
from tests.models.test_translator import TINY, model

SETTINGS = BeamSettings(beam_size=3, extra_length=6)


def sharp(seed: int, made: TranslatorModel) -> TranslatorModel:
    """With opinions of its own."""
    torch.manual_seed(seed)
    with torch.no_grad():
        made.embedding.output_bias.copy_(torch.randn(30))
        made.embedding.output_bias[EOS] = 1.5
    return made.eval()


@pytest.fixture
def models() -> list[TranslatorModel]:
    """Of different shapes."""
    return [sharp(1, model()), sharp(2, model(dim=8, heads=2, decoder_layers=1))]


@torch.inference_mode()
def probabilities(model: Stepwise, source: list[int], pieces: list[int]) -> torch.Tensor:
    """(pieces said, target vocabulary): after BOS and each of some pieces."""
    state = model.start(torch.tensor([[*source, EOS]]), model.directions[0])
    return torch.cat([model.step(torch.tensor([piece]), state).softmax(-1) for piece in [BOS, *pieces]])


def test_the_mean_of_the_probabilities_counts_at_each_piece(models: list[TranslatorModel]) -> None:
    mean = sum(probabilities(one, SOURCES[0], [9, 10]) for one in models) / 2
    assert torch.allclose(probabilities(Ensemble(models), SOURCES[0], [9, 10]), torch.as_tensor(mean), atol=1e-6)


def test_a_beam_search_scores_by_it(models: list[TranslatorModel]) -> None:
    """Rows that change places do so in every model."""
    together = Ensemble(models)
    vocabulary = together.target_vocabulary(together.directions[0]).tolist()
    for source, hypotheses in zip(SOURCES, found(together, SETTINGS), strict=True):
        for hypothesis in hypotheses:
            said = probabilities(together, source, hypothesis.pieces).log()
            expected = [float(row[vocabulary.index(n)]) for row, n in zip(said, [*hypothesis.pieces, EOS], strict=True)]
            assert hypothesis.piece_scores == pytest.approx(expected, abs=1e-4)


def test_models_that_agree_say_what_one_says(models: list[TranslatorModel]) -> None:
    alone, thrice = models[0], Ensemble(models[:1] * 3)
    results = [list(itertools.chain(*found(one, SETTINGS))) for one in (alone, thrice)]
    assert [one.pieces for one in results[0]] == [one.pieces for one in results[1]]
    assert [one.score for one in results[0]] == pytest.approx([one.score for one in results[1]], abs=1e-4)
    sampling = Sampling(SETTINGS)
    sentences = [Sentence(source, key=str(source)) for source in SOURCES]
    drawn = [sampling.decode(one, sentences, alone.directions[0]) for one in (alone, thrice)]
    assert [one.pieces for (one,) in drawn[0]] == [one.pieces for (one,) in drawn[1]]


def test_each_has_its_own_directions_and_pieces_that_it_may_say(models: list[TranslatorModel]) -> None:
    """As a model and one that went on from it with more text, or with a direction more."""
    fewer = torch.ones(30, dtype=torch.bool)
    fewer[[PAD, BOS, 20, 29]] = False
    ways = {("gl", "en"): torch.ones(30, dtype=torch.bool), ("en", "gl"): fewer}
    together = Ensemble([models[0], sharp(3, TranslatorModel(TINY, ways))])
    (direction,) = together.directions
    vocabulary = together.target_vocabulary(direction)
    assert (direction.name, vocabulary.tolist()) == ("en-gl", models[0].target_vocabulary(direction).tolist())
    place = vocabulary.tolist().index(20)
    (first,) = probabilities(models[0], SOURCES[0], [])
    (both,) = probabilities(together, SOURCES[0], [])
    assert float(both[place]) == pytest.approx(float(first[place]) / 2, abs=1e-6)
