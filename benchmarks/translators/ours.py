"""qknorm itself, through the classes that its commands use."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.translators import Pieces, Sentences, Size
from qknorm.attention.norms import LpKind
from qknorm.attention.scale import henry_scale
from qknorm.data.batches import Encoded, FixedPairs
from qknorm.data.corpus_report import DirectionReport
from qknorm.data.prepared import ParallelFiles, Prepared, PreparedDirection, PreparedSet
from qknorm.data.subwords import Subwords
from qknorm.decoding.beam import BeamSettings, Hypothesis, beam_search
from qknorm.decoding.sentence import Sentence
from qknorm.models.translator import TranslatorModel
from qknorm.optimisation.optimisers import make_optimiser
from qknorm.optimisation.schedules import Constant
from qknorm.runs.recipe import make_recipe
from qknorm.screen import Screen
from qknorm.training.trainer import Trainer, TrainerSettings
from qknorm.training.translation import TranslationTask


class OurLearner:
    """A TranslationTask in a Trainer: the update of `qknorm train`."""

    def __init__(self, sentences: Sentences, size: Size, qk_norm: str) -> None:
        recipe = make_recipe(
            {
                "data": {"source": "drawn", "target": "drawn"},
                "training": {"budget": size.budget, "word_dropout": size.word_dropout},
            },
            (),
            "benchmark",
        )
        model = make_model(sentences, size, qk_norm)
        pairs = FixedPairs(Encoded.from_lists(sentences.sources), Encoded.from_lists(sentences.targets))
        train, nothing = PreparedSet([], [], pairs), PreparedSet([], [], FixedPairs(*[Encoded.from_lists([])] * 2))
        report = DirectionReport(read=len(pairs), kept=len(pairs), dropped={})
        direction = PreparedDirection(ParallelFiles(Path(), Path()), train, nothing, nothing, report, Path())
        unused = Subwords.learn(["a"], 1, "words")  # the sentences are pieces already
        task = TranslationTask(recipe, model, Prepared(unused, [direction], Path()), Screen(quiet=True))
        settings = TrainerSettings(validate_every=10**9, max_validations=1, clip=1.0)
        schedule = Constant(3e-4)
        optimizer = make_optimiser(model, recipe.training)
        self._trainer = Trainer(task, optimizer, schedule, settings, Path(tempfile.gettempdir()), Screen(quiet=True))
        self._batches = iter(task.batches)

    def update(self) -> int:
        batch = next(self._batches)
        self._trainer.update(iter([batch]))
        return batch.target_tokens


def make_model(sentences: Sentences, size: Size, qk_norm: str) -> TranslatorModel:
    target_pieces = torch.zeros(sentences.vocabulary, dtype=torch.bool)
    target_pieces[sentences.target_vocabulary] = True
    config = replace(size, qk_norm=LpKind(scale_init=henry_scale(72)) if qk_norm == "lp" else qk_norm)
    return TranslatorModel(config, {("en", "gl"): target_pieces})


class OurDecoder:
    """`beam_search` with the settings of a run."""

    def __init__(self, model: TranslatorModel, settings: BeamSettings) -> None:
        self.model, self.settings = model, settings

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        return [best.pieces for best in self._best(sources, self.settings)]

    def forced(self, sources: Sequence[Pieces], length: int) -> int:
        exactly = replace(self.settings, min_length=length - 1, max_length=length - 1, extra_length=length)
        return sum(len(best.pieces) + 1 for best in self._best(sources, exactly))

    def _best(self, sources: Sequence[Pieces], settings: BeamSettings) -> list[Hypothesis]:
        found = beam_search(self.model, list(map(Sentence, sources)), settings, self.model.directions[0])
        return [best for best, *_ in found]
