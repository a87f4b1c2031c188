"""A recipe for the minutes that somebody has: looks at the text and the machine, asks the planner, says what it plans.

Whatever the recipe says itself stays as it is; the planner fills in the rest in plain numbers, so that the run can be
repeated, and resumed on any machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from qknorm import processes
from qknorm.counting.kept import translations
from qknorm.data.batches import Batch, BatchSampler
from qknorm.data.prepared import Prepared, PreparedSet
from qknorm.metrics.table import is_too_short_for_bleu
from qknorm.models.half import autocast, use_half_products
from qknorm.ops import load_kernels
from qknorm.ops.products import HAS_HALF_PRODUCTS
from qknorm.optimisation.optimisers import make_optimiser
from qknorm.runs.recipe import Recipe, laid_over_plan, merged
from qknorm.runs.translator_run import TranslatorRun, make_model
from qknorm.screen import Screen, duration
from qknorm.training import planner
from qknorm.training.parents import grown_by_plan, shape_of, vocabulary_file
from qknorm.training.planner import Length, Shape, TextSize
from qknorm.training.sets import parts_of, prepared_text
from qknorm.training.speed import operations_per_second, seconds_per_update

_BATCHES_MEASURED = 64
_LITTLE_LEFT = 0.25  # of the minutes: somebody should know
_BY_CHRF = "Most lines are too short for BLEU, so the best checkpoint is chosen by chrF; metric=bleu changes that."

Content = Mapping[str, Any]


def planned_recipe(recipe: Recipe, console: Screen) -> tuple[Recipe, Prepared]:
    """The recipe with all that its minutes decide, and its text as it was made ready for that."""
    planning = _Planning(recipe, console)
    planning.choose_metric()
    planning.choose_model()
    planning.choose_precision()
    return planning.choose_length(), planning.prepared


class _Planning:
    """One decision after the other, each laid under what the recipe says itself."""

    def __init__(self, recipe: Recipe, console: Screen) -> None:
        assert recipe.minutes is not None
        if processes.device().type == "cpu":
            load_kernels()  # before the clock begins: on a busy machine they may take minutes to compile, once
        self._began, self._seconds, self._console = time.monotonic(), recipe.minutes * 60, console
        self._given = recipe.model_dump(exclude_unset=True, exclude={"minutes"})
        self._planned: Content = planner.START
        merges = None if "merges" in self._given.get("data", {}) else planner.merges_for
        self.prepared = prepared_text(self._recipe().data, merges, vocabulary=vocabulary_file(recipe))
        self._planned = merged(self._planned, {"data": {"merges": self.prepared.merges}})
        self._text = text_size(self.prepared)
        if self._recipe().model.embedding_init == "counted":
            translations(self.prepared, console)  # kept, and found again when training begins
        self._remarks: list[str] = []

    def choose_metric(self) -> None:
        """chrF, where BLEU of a dev set says nothing: of a glossary, the checkpoint that says too much has the most."""
        tokenized = self._recipe().data.scheme == "words"
        dev_sets = [direction.dev.targets for direction in self.prepared.directions]
        is_given = "metric" in self._given.get("training", {})
        if not is_given and any(is_too_short_for_bleu(references, tokenized) for references in dev_sets):
            self._planned = merged(self._planned, {"training": {"metric": "chrf"}})
            self._remarks.append(_BY_CHRF)

    def choose_model(self) -> None:
        self._shape = shape_within(self._seconds_left(), self.prepared, self._text)
        given, parent = self._given.get("model", {}), self._recipe().parent
        if parent is None:
            shape = asdict(self._shape)
            dim = given.get("dim", shape["dim"])
            shape["heads"] = next(heads for heads in range(shape["heads"], 0, -1) if dim % heads == 0)
        else:
            shape = grown_by_plan(TranslatorRun.open(Path(parent)).recipe.model, self._shape, given)
            dim = shape["dim"]
        budget = planner.budget_for(dim, self._recipe().training.optimizer)
        peak = planner.peak_for(dim, has_parent=parent is not None)
        training = {"peak": peak, "budget": budget}
        self._planned = merged(self._planned, {"model": shape, "training": training})

    def choose_precision(self) -> None:
        """The faster one of two, as measured, where a CPU has both; otherwise float32 unless the recipe says so."""
        is_choice = processes.device().type == "cpu" and HAS_HALF_PRODUCTS
        choices = ("float32", "bf16") if is_choice else ("float32",)
        plans = [merged(self._planned, {"training": {"precision": precision}}) for precision in choices]
        speeds = [speed_of(self._recipe(plan), self.prepared) for plan in plans]
        self._speed, self._planned = min(zip(speeds, plans, strict=True), key=lambda choice: choice[0])

    def choose_length(self) -> Recipe:
        left, recipe = self._seconds_left(), self._recipe()
        updates = recipe.training.max_updates if "max_updates" in self._given.get("training", {}) else None
        length = planner.length_for(self._text, left, *self._speed, updates)
        if updates is None and left < _LITTLE_LEFT * self._seconds:
            self._console.print(
                f"Making the text ready and measuring took {(self._seconds - left) / 60:.1f} of {self._seconds / 60:g} "
                "minutes: hardly any time is left to learn in. Give it more."
            )
        _say(recipe, length, [*self._remarks, self._of_more_time(recipe, length)], self._console)
        return self._recipe(merged(self._planned, planner.settings(length, recipe.model.dim, bool(recipe.data.extra))))

    def _of_more_time(self, recipe: Recipe, length: Length) -> str:
        """What it would be good for."""
        if length.is_limited_by_text:
            return "The text is small for the time: more passes would only learn it by heart, so it will end sooner."
        seconds = self._seconds_left() + self._seconds
        larger = shape_within(seconds, self.prepared, self._text)
        if shape_of(recipe.model) == self._shape and larger.weights > self._shape.weights:
            return f"Twice the minutes would be enough for a larger model, {larger}; a run that has ended can grow."
        passes = planner.length_for(self._text, seconds, *self._speed).passes
        return f"Twice the minutes would give {passes:.1f} passes; a run that has ended can go on."

    def _recipe(self, planned: Content | None = None) -> Recipe:
        return laid_over_plan(planned or self._planned, self._given, "the planned recipe")

    def _seconds_left(self) -> float:
        return self._seconds - (time.monotonic() - self._began)


def text_size(prepared: Prepared) -> TextSize:
    dev, test = (
        sum(_positions(direction.held_out[name]) for direction in prepared.directions) for name in ("dev", "test")
    )
    return TextSize(training_positions(prepared), dev, test)


def training_positions(prepared: Prepared) -> int:
    """Of one pass."""
    return sum(_positions(text.train) for text in prepared.texts)


def _positions(sentences: PreparedSet) -> int:
    """Pieces on the longer side of each pair, EOS included: what `training.budget` counts."""
    pairs = sentences.encoded
    return int((np.maximum(pairs.source.lengths, pairs.target.lengths) + 1).sum())


def speed_of(recipe: Recipe, prepared: Prepared) -> tuple[float, float]:
    """Seconds of an update, and how many positions it learns, as this machine trains this very model."""
    model = make_model(recipe, parts_of(recipe, prepared), len(prepared.subwords)).to(processes.device())
    if recipe.training.precision == "bf16" and processes.device().type == "cpu":
        use_half_products(model)
    training, batches = recipe.training, _batches(recipe, prepared)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with autocast(processes.device(), training.precision):
            value: Tensor = model(batch.to(processes.device()).with_word_dropout(training.word_dropout))
        return value

    seconds = seconds_per_update(model, make_optimiser(model, training), loss, cycle(batches)) * training.accumulate
    return seconds, positions_per_update(recipe, prepared)


def positions_per_update(recipe: Recipe, prepared: Prepared) -> float:
    """Padding included, over all processes."""
    batches = _batches(recipe, prepared)
    positions = sum(len(batch) * max(batch.source.shape[1], batch.target_in.shape[1]) for batch in batches)
    return positions / len(batches) * recipe.training.accumulate * processes.count()


def _batches(recipe: Recipe, prepared: Prepared) -> list[Batch]:
    """Some, to measure by."""
    directions = [direction.train.encoded for direction in prepared.directions]
    sampler = BatchSampler(directions, recipe.training.budget, recipe.training.seed)
    return list(islice(sampler, _BATCHES_MEASURED))


def shape_within(seconds: float, prepared: Prepared, text: TextSize) -> Shape:
    """What a plan chooses that has this much time on this machine."""
    operations = operations_per_second(processes.device()) * processes.count() * seconds
    return planner.shape_for(operations, len(prepared.subwords), text.positions)


def _say(recipe: Recipe, length: Length, remarks: Sequence[str], console: Screen) -> None:
    """The plan in a few lines."""
    lines = [
        f"The plan: {shape_of(recipe.model)}, {recipe.training.precision}; {length.updates:,} updates, "
        f"{length.passes:.1f} passes through the text; about {duration(length.seconds)}, "
        f"until {clock_after(length.seconds)}.",
        *remarks,
    ]
    if _is_busy():
        lines.append("Other programs keep this machine busy: on a free one the plan would be longer.")
    if length.passes < 1:
        lines.append("The time is short for the text: not all of it will be read even once.")
    console.print("\n".join(lines))


def _is_busy() -> bool:
    """Whether more wants to run than there are cores, this program among it."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) + 0.5


def clock_after(seconds: float) -> str:
    return f"{datetime.now() + timedelta(seconds=seconds):%H:%M}"
