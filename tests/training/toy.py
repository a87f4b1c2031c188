"""A task so small that every update can be followed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qknorm.optimisation.optimisers import make_optimiser
from qknorm.optimisation.schedules import Constant, Schedule
from qknorm.runs.recipe import TrainingRecipe
from qknorm.screen import Screen
from qknorm.training.trainer import Trainer, TrainerSettings
from qknorm.training.validation import Validation


class Counting:
    """Batches of 1, 2, 3, 1, 2, 3, … tokens, each token a vector of 4."""

    def __init__(self) -> None:
        self.drawn = 0

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            self.drawn += 1
            generator = torch.Generator().manual_seed(self.drawn)
            yield torch.randn(1 + (self.drawn - 1) % 3, 4, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drawn = state["drawn"]


def scored(bleu: float) -> Validation:
    return Validation({"dev_bleu": bleu}, "dev_bleu", more_is_better=True)


class Toy:
    """A line through points, with noise on the inputs so that the random state matters."""

    def __init__(self, scores: dict[int, float] | None = None, bad: int | None = None, noise: float = 0.1) -> None:
        torch.manual_seed(1)
        self.model = nn.Linear(4, 1)
        self.batches = Counting()
        self.scores, self.bad, self.noise = scores or {}, bad, noise
        self.validations = 0

    def loss(self, batch: Tensor) -> tuple[Tensor, int]:
        noisy = batch + self.noise * torch.randn_like(batch)
        loss = (self.model(noisy) - batch.sum(1, keepdim=True)).square().mean()
        return loss * (math.nan if self.batches.drawn == self.bad else 1.0), len(batch)

    def ends_after(self, updates: int) -> None:
        """It learns the same from beginning to end."""

    def validate(self) -> Validation:
        self.validations += 1
        return scored(self.scores.get(self.validations, float(self.validations)))


def trainer(
    folder: Path,
    task: Toy | None = None,
    schedule: Schedule | None = None,
    console: Screen | None = None,
    optimiser: str = "adam",
    **settings: Any,
) -> Trainer:
    chosen = {
        "validate_every": 4, "max_validations": 100, "max_updates": 12, "clip": 1e9,
    } | settings  # fmt: skip
    folder.mkdir(exist_ok=True)
    task = task or Toy()
    return Trainer(
        task,
        make_optimiser(task.model, TrainingRecipe(optimizer=optimiser, beta2=0.99, weight_decay=0.1)),
        schedule or Constant(0.01),
        TrainerSettings(**chosen),
        folder,
        console or Screen(quiet=True),
    )
