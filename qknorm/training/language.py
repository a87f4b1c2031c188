"""Training a language model: from a recipe to a run folder."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qknorm import processes
from qknorm.attention.watch import diagnose
from qknorm.data import corpora
from qknorm.data.characters import CharacterText, WindowSampler
from qknorm.data.folds import Fold, TextBlock, consecutive_windows, k_folds
from qknorm.errors import InputError
from qknorm.models.gpt import GPT
from qknorm.optimisation.optimisers import make_optimiser
from qknorm.optimisation.schedules import Cosine
from qknorm.runs.contents import Details, LayerAttention
from qknorm.runs.language_recipe import LanguageRecipe, TextRecipe
from qknorm.runs.language_run import LanguageRun, gpt_config
from qknorm.runs.recipe import refuse_changes
from qknorm.runs.run import refuse_to_overwrite
from qknorm.screen import Screen
from qknorm.training.loggers.table import chosen_loggers
from qknorm.training.trainer import Progress, Trainer, TrainerSettings
from qknorm.training.validation import Validation

_VALIDATION_BATCH = 64
_DIAGNOSED_WINDOWS = 8


class LanguageTask:
    """What the trainer needs to know about language models."""

    def __init__(self, recipe: LanguageRecipe, model: GPT, text: CharacterText, fold: Fold) -> None:
        self.model = model
        training, self.context = recipe.training, recipe.model.context
        self.batches = WindowSampler(
            text, fold.train, self.context, training.batch, training.seed, processes.rank(), processes.count()
        )
        starts = consecutive_windows(fold.held_out, self.context + 1)
        if training.validation_windows is not None and training.validation_windows < len(starts):
            starts = starts[np.linspace(0, len(starts) - 1, training.validation_windows).round().astype(np.int64)]
        self.held_out = text.windows(starts, self.context)

    def loss(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        characters, targets = (part.to(self._device) for part in batch)
        return self.model(characters, targets), targets.numel()

    @torch.no_grad()
    def ends_after(self, updates: int) -> None:
        """It learns the same from beginning to end."""

    def validate(self) -> Validation:
        began, total = time.monotonic(), 0.0
        for start in range(0, len(self.held_out[0]), _VALIDATION_BATCH):
            characters, targets = (part[start : start + _VALIDATION_BATCH].to(self._device) for part in self.held_out)
            total += float(self.model(characters, targets)) * len(characters)
        diagnosed = [part[:_DIAGNOSED_WINDOWS].to(self._device) for part in self.held_out]
        attention = [LayerAttention(**layer) for layer in diagnose(self.model, diagnosed)]
        return Validation(
            {"val_loss": total / len(self.held_out[0])},
            "val_loss",
            more_is_better=False,
            details=Details(attention=attention, validation_seconds=time.monotonic() - began),
        )

    @property
    def _device(self) -> torch.device:
        return self.model.positions.weight.device


def train(recipe: LanguageRecipe, folder: Path, console: Screen, resume: bool) -> Progress:
    """Train from the beginning, or go on where an interrupted run stands."""
    run = LanguageRun(folder)
    if resume:
        refuse_changes(LanguageRun.open(folder).recipe, recipe, folder)
    else:
        refuse_to_overwrite(run)
    if recipe.training.batch < processes.count():
        raise InputError(
            f"training.batch ({recipe.training.batch}) must be at least the number of processes ({processes.count()})"
        )
    text = processes.first_then_others(lambda: read_text(recipe.data))
    fold = fold_of(recipe.data, text)
    torch.manual_seed(recipe.training.seed)
    model = GPT(gpt_config(recipe.model, len(text.characters))).to(processes.device())
    task = LanguageTask(recipe, model, text, fold)
    if resume:
        run.refuse_other_text(text)
    elif processes.rank() == 0:
        run.begin(recipe, text)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{len(text.numbers):,} characters, {len(text.characters)} different ones; {parameters:,} parameters",
    )
    optimizer = make_optimiser(model, recipe.training)
    trainer = Trainer(task, optimizer, _schedule(recipe), _settings(recipe), folder, console)
    if resume:
        trainer.resume()
    return trainer.train()


def read_text(data: TextRecipe) -> CharacterText:
    if data.corpus is not None:
        return CharacterText.read(corpora.get(data.corpus).text)
    assert data.file is not None
    return CharacterText.read(Path(data.file))


def fold_of(data: TextRecipe, text: CharacterText) -> Fold:
    """What is learned from and what is held out: a fold, or the last part of the text."""
    length = len(text.numbers)
    if data.folds is None:
        edge = round(length * (1 - data.held_out))
        return Fold((TextBlock(0, edge),), TextBlock(edge, length))
    if text.lines < data.folds:
        raise InputError(f"a text of {text.lines} lines cannot be cut into {data.folds} folds")
    return k_folds(length, data.folds)[data.fold or 0]


def _schedule(recipe: LanguageRecipe) -> Cosine:
    training = recipe.training
    return Cosine(training.peak, training.warmup, training.iterations, training.final)


def _settings(recipe: LanguageRecipe) -> TrainerSettings:
    training = recipe.training
    return TrainerSettings(
        validate_every=training.validate_every,
        max_validations=training.iterations // training.validate_every + 1,
        max_updates=training.iterations,
        clip=training.clip,
        validation_decay=False,
        precision=training.precision,
        loggers=chosen_loggers(training),
    )
