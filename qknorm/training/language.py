"""Training a language model: from a recipe to a run folder.

runs/NAME/  recipe.yaml  characters.json  corpus.json  metrics.jsonl  checkpoints/
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qknorm import processes
from qknorm.attention.module import parameter_groups
from qknorm.data import corpora
from qknorm.data.characters import Text, WindowSampler
from qknorm.data.folds import Block, Fold, consecutive_windows, k_folds
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.evaluation.attention_diagnostics import diagnose
from qknorm.models.gpt import GPT
from qknorm.runs.language_recipe import LanguageRecipe, TextRecipe
from qknorm.runs.language_run import gpt_config, recipe_of
from qknorm.runs.recipe import refuse_changes, save_recipe
from qknorm.screen import Screen
from qknorm.training.schedules import Schedule
from qknorm.training.trainer import Limits, Progress, Trainer

_VALIDATION_BATCH = 64
_DIAGNOSED_WINDOWS = 8


class LanguageTask:
    """What the trainer needs to know about language models."""

    def __init__(self, recipe: LanguageRecipe, model: GPT, text: Text, fold: Fold) -> None:
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
    def validate(self) -> dict[str, Any]:
        began, total = time.monotonic(), 0.0
        for start in range(0, len(self.held_out[0]), _VALIDATION_BATCH):
            characters, targets = (part[start : start + _VALIDATION_BATCH].to(self._device) for part in self.held_out)
            total += float(self.model(characters, targets)) * len(characters)
        diagnosed = self.held_out[0][:_DIAGNOSED_WINDOWS].to(self._device)
        return {
            "val_loss": total / len(self.held_out[0]),
            "attention": diagnose(self.model, diagnosed),
            "validation_seconds": time.monotonic() - began,
        }

    @property
    def _device(self) -> torch.device:
        return self.model.positions.weight.device


def train(recipe: LanguageRecipe, folder: Path, console: Screen, resume: bool) -> Progress:
    """Train from the beginning, or go on where an interrupted run stands."""
    if resume:
        refuse_changes(recipe_of(folder), recipe, folder)
    elif (folder / "recipe.yaml").exists():
        raise InputError(f"{folder} holds a run already; go on with --resume, or choose another name=NAME")
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
        _check_text(folder, text)
    elif processes.rank() == 0:
        _start(folder, recipe, text)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{len(text.numbers):,} characters, {len(text.characters)} different ones; {parameters:,} parameters",
    )
    trainer = Trainer(task, _schedule(recipe), _limits(recipe), folder, console, _optimizer(recipe, model))
    if resume and trainer.resume():
        console.print(f"going on after update {trainer.progress.step:,}")
    try:
        return trainer.train()
    except KeyboardInterrupt:
        command = processes.command_to_resume(folder, processes.count())
        console.print(f"\nSaved after update {trainer.progress.step:,}. Go on with: {command}")
        raise


def read_text(data: TextRecipe) -> Text:
    if data.corpus is not None:
        return Text.read(corpora.get(data.corpus).text)
    assert data.file is not None
    return Text.read(Path(data.file))


def fold_of(data: TextRecipe, text: Text) -> Fold:
    """What is learned from and what is held out: a fold, or the last part of the text."""
    length = len(text.numbers)
    if data.folds is None:
        edge = round(length * (1 - data.held_out))
        return Fold((Block(0, edge),), Block(edge, length))
    if text.lines < data.folds:
        raise InputError(f"a text of {text.lines} lines cannot be cut into {data.folds} folds")
    return k_folds(length, data.folds)[data.fold or 0]


def _start(folder: Path, recipe: LanguageRecipe, text: Text) -> None:
    """Fill a new run folder with all but checkpoints. The recipe comes last: with it the folder is a run."""
    folder.mkdir(parents=True, exist_ok=True)
    text.characters.save(folder / "characters.json")
    with replacing(folder / "corpus.json") as file:
        about = {"characters": len(text.numbers), "lines": text.lines, "sha256": text.sha256}
        file.write(json.dumps(about).encode())
    save_recipe(recipe, folder / "recipe.yaml")


def _check_text(folder: Path, text: Text) -> None:
    if json.loads((folder / "corpus.json").read_text())["sha256"] != text.sha256:
        raise InputError(f"the text has changed since {folder} was begun; a run cannot go on with another text")


def _optimizer(recipe: LanguageRecipe, model: GPT) -> torch.optim.Optimizer:
    training = recipe.training
    groups = parameter_groups(model, training.weight_decay)
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, training.beta2), fused=True)


def _schedule(recipe: LanguageRecipe) -> Schedule:
    training = recipe.training
    return Schedule("cosine", training.peak, training.warmup, training.iterations, training.final)


def _limits(recipe: LanguageRecipe) -> Limits:
    training = recipe.training
    validations = training.iterations // training.validate_every + 1
    return Limits(
        training.validate_every, validations, training.iterations, 0.0, None, 1, training.clip, validation_decay=False
    )
