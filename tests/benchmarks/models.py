"""A model and sentences for those that carry our weights."""

import torch

from qknorm.data.subwords import BOS, PAD
from qknorm.decoding.beam import BeamSettings, Hypothesis, beam_search
from qknorm.decoding.sentence import Sentence
from qknorm.models.translator import TranslatorConfig, TranslatorModel

SOURCES = [[7, 8, 9, 30, 31], [12], [11, 10, 9, 8, 7, 6, 5, 4]]


def small_model(**choices: object) -> TranslatorModel:
    torch.manual_seed(0)
    target_pieces = torch.ones(40, dtype=torch.bool)
    target_pieces[[PAD, BOS, 20, 21, 22]] = False
    config = TranslatorConfig(16, 32, 2, 3, 2, **choices)  # type: ignore[arg-type]
    model = TranslatorModel(config, {("en", "gl"): target_pieces}).eval()
    for parameter in model.parameters():  # biases and norms too, which start at 0 and 1
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def best_of(model: TranslatorModel, settings: BeamSettings) -> list[Hypothesis]:
    return [best for best, *_ in beam_search(model, [*map(Sentence, SOURCES)], settings, model.directions[0])]
