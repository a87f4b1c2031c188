"""qknorm itself, through the classes that its commands use."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.translators import Pieces, Sentences, Size
from qknorm.attention.scale import henry_scale
from qknorm.data.batches import Encoded, FixedPairs
from qknorm.data.prepared import Prepared, PreparedPair
from qknorm.data.subwords import Subwords
from qknorm.decoding.beam import BeamSettings, beam_search
from qknorm.models.translator import LanguagePair, TranslatorConfig, TranslatorModel
from qknorm.runs.recipe import make_recipe
from qknorm.screen import Screen
from qknorm.training.schedules import Schedule
from qknorm.training.trainer import Limits, Trainer
from qknorm.training.translation import TranslationTask


class OurLearner:
    """A TranslationTask in a Trainer: the update of `qknorm train`."""

    def __init__(self, sentences: Sentences, size: Size, attention: str) -> None:
        recipe = make_recipe(
            {
                "data": {"source": "drawn", "target": "drawn"},
                "training": {"budget": size.budget, "word_dropout": size.word_dropout},
            },
            (),
            "benchmark",
        )
        model = make_model(sentences, size, attention)
        pair = PreparedPair(
            [], [], FixedPairs(Encoded.from_lists(sentences.sources), Encoded.from_lists(sentences.targets)), {}, Path()
        )
        unused = Subwords.learn(["a"], 1, "words")  # the sentences are pieces already
        task = TranslationTask(recipe, model, Prepared(unused, [pair], Path()), [], Screen(quiet=True))
        limits = Limits(10**9, 1, None, 0.0, None, 1, 1.0)
        schedule = Schedule("constant", 3e-4)
        self._trainer = Trainer(task, schedule, limits, Path(tempfile.gettempdir()), Screen(quiet=True))
        self._batches = iter(task.batches)

    def update(self) -> int:
        batch = next(self._batches)
        self._trainer.update(iter([batch]))
        return batch.target_tokens


def make_model(sentences: Sentences, size: Size, attention: Any) -> TranslatorModel:
    said = torch.zeros(sentences.vocabulary, dtype=torch.bool)
    said[sentences.said] = True
    config = TranslatorConfig(
        dim=size.dim,
        feed_forward=size.feed_forward,
        encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers,
        heads=size.heads,
        attention=attention,
        scale_init=henry_scale(72),
        label_smoothing=size.label_smoothing,
        dropout=size.dropout,
        attention_dropout=size.dropout,
        relu_dropout=size.dropout,
        embedding_dropout=size.dropout,
    )
    return TranslatorModel(config, [LanguagePair(0, 1, said)])


def size_of(model: TranslatorModel) -> Size:
    """The size that another translator must have to be compared with this one."""
    config = model.config
    return Size(config.dim, config.feed_forward, config.encoder_layers, config.decoder_layers, config.heads)


class OurDecoder:
    """`beam_search` with the settings of a run."""

    def __init__(self, model: TranslatorModel, settings: BeamSettings) -> None:
        self.model, self.settings = model, settings

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        return [found[0].pieces for found in beam_search(self.model, sources, self.settings, n_best=1)]

    def forced(self, sources: Sequence[Pieces], length: int) -> int:
        exactly = replace(self.settings, min_length=length - 1, max_length=length - 1, extra_length=length)
        return sum(len(found[0].pieces) + 1 for found in beam_search(self.model, sources, exactly, n_best=1))
