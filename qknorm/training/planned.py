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
from typing import Any

import numpy as np
from torch import Tensor, nn

from qknorm import processes
from qknorm.counting.kept import translations
from qknorm.data.batches import Batch, BatchSampler, FixedPairs
from qknorm.data.prepared import Prepared
from qknorm.errors import InputError
from qknorm.metrics.short import is_too_short_for_bleu
from qknorm.ops import load_kernels
from qknorm.ops.products import HAS_HALF_PRODUCTS
from qknorm.optimisation.optimisers import make_optimiser
from qknorm.runs.recipe import Recipe, checked, laid_over_plan, merged
from qknorm.runs.translator_run import TranslatorRun, make_model
from qknorm.screen import Screen
from qknorm.training import planner
from qknorm.training.half import autocast, use_half_products
from qknorm.training.planner import Corpus, Plan
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
        self.prepared = prepared_text(self._recipe().data, merges)
        self._planned = merged(self._planned, {"data": {"merges": self.prepared.merges}})
        self._corpus = _corpus(self.prepared)
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
        operations = operations_per_second(processes.device()) * processes.count() * self._seconds_left()
        shape = asdict(planner.shape_for(operations, len(self.prepared.subwords), self._corpus.positions))
        dim = self._given.get("model", {}).get("dim", shape["dim"])
        shape["heads"] = next(heads for heads in range(shape["heads"], 0, -1) if dim % heads == 0)
        budget = planner.budget_for(dim, self._recipe().training.optimizer)
        training = {"peak": planner.peak_for(dim), "budget": budget}
        self._planned = merged(self._planned, {"model": shape, "training": training})

    def choose_precision(self) -> None:
        """The faster one of two, as measured, where a CPU has both; otherwise float32 unless the recipe says so."""
        is_choice = processes.device().type == "cpu" and HAS_HALF_PRODUCTS
        choices = ("float32", "bf16") if is_choice else ("float32",)
        plans = [merged(self._planned, {"training": {"precision": precision}}) for precision in choices]
        speeds = [_speed(self._recipe(plan), self.prepared) for plan in plans]
        self._speed, self._planned = min(zip(speeds, plans, strict=True), key=lambda choice: choice[0])

    def choose_length(self) -> Recipe:
        left, recipe = self._seconds_left(), self._recipe()
        updates = recipe.training.max_updates if "max_updates" in self._given.get("training", {}) else None
        plan, twice = (planner.plan(self._corpus, time, *self._speed, updates) for time in (left, left + self._seconds))
        if updates is None and left < _LITTLE_LEFT * self._seconds:
            self._console.print(
                f"Making the text ready and measuring took {(self._seconds - left) / 60:.1f} of {self._seconds / 60:g} "
                "minutes: hardly any time is left to learn in. Give it more with --minutes."
            )
        _say(recipe, plan, twice, self._remarks, self._console)
        return self._recipe(merged(self._planned, planner.settings(plan, recipe.model.dim)))

    def _recipe(self, planned: Content | None = None) -> Recipe:
        return laid_over_plan(planned or self._planned, self._given, "the planned recipe")

    def _seconds_left(self) -> float:
        return self._seconds - (time.monotonic() - self._began)


def prolong(run: TranslatorRun, minutes: float, prepared: Prepared, console: Screen) -> Recipe:
    """Let a run that has ended go on for this many minutes, from where its learning rate began to fall.

    The run is changed last: what is refused here leaves it as it was. Returns its new recipe.
    """
    recipe, checkpoints = run.recipe, run.checkpoints
    stable = checkpoints.stable()
    if stable is None:
        raise InputError(
            f"{run.folder} cannot be prolonged: it has no checkpoint from before its learning rate fell "
            "(training.schedule: trapezoid makes one); an interrupted run goes on with --resume"
        )
    newest = checkpoints.newest()
    if newest is not None and not _has_ended(checkpoints.progress(newest), recipe):
        command = processes.command_to_resume(run.folder, processes.count())
        raise InputError(f"{run.folder} has not ended yet, so it cannot be prolonged; go on with: {command}")
    checkpoints.refuse_other_processes(stable)
    speed = _speed(recipe, prepared)
    more = planner.plan(_corpus(prepared), minutes * 60, *speed)
    done = int(stable.name.removeprefix("step-"))
    settings = planner.prolonged(done, more, recipe.training.validate_every, recipe.training.max_validations)
    prolonged = checked(Recipe, merged(recipe.model_dump(), settings), "the prolonged recipe")
    ended, total = checkpoints.progress(newest or stable)["step"], settings["training"]["max_updates"]
    if total <= ended:
        needed = planner.plan(_corpus(prepared), minutes * 60, *speed, ended - done).seconds / 60
        raise InputError(
            f"{minutes:g} minutes are too few: {run.folder} would go on from update {done:,}, before its learning rate "
            f"fell, and {ended:,} updates, as many as it had, take about {needed:.2g} minutes from there; give it more"
        )
    console.print(
        f"{total - done:,} updates after the {done:,} before the learning rate fell, {total:,} in all instead of "
        f"{ended:,}; about {more.seconds / 60:.0f} minutes, until {_clock(more.seconds)}",
    )
    checkpoints.rewind(stable)
    run.save_recipe(prolonged)
    return prolonged


def _has_ended(progress: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether a run that was last saved with this progress had come to its planned or shortened end."""
    training = recipe.training
    total = training.max_updates or training.max_validations * training.validate_every
    planned, end = progress["shortened"] or (total, total)
    return bool(progress["validated"] == progress["step"] == (end if planned == total else total))


def _corpus(prepared: Prepared) -> Corpus:
    sets = zip(*([direction.train, direction.dev, direction.test] for direction in prepared.directions), strict=True)
    return Corpus(*(sum(_longer(pairs.encoded) for pairs in same) for same in sets))


def _longer(pairs: FixedPairs) -> int:
    """Pieces on the longer side of each pair, EOS included: what `training.budget` counts."""
    return int((np.maximum(pairs.source.lengths, pairs.target.lengths) + 1).sum())


def _speed(recipe: Recipe, prepared: Prepared) -> tuple[float, float]:
    """Seconds of an update, and how many positions it learns, as this machine trains this very model."""
    model = make_model(recipe, parts_of(recipe, prepared), len(prepared.subwords)).to(processes.device())
    if recipe.training.precision == "bf16" and processes.device().type == "cpu":
        use_half_products(model)
    directions, training = [direction.train.encoded for direction in prepared.directions], recipe.training
    batches = list(islice(BatchSampler(directions, training.budget, training.seed), _BATCHES_MEASURED))

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with autocast(processes.device(), training.precision):
            value: Tensor = model(batch.to(processes.device()).with_word_dropout(training.word_dropout))
        return value

    positions = sum(len(batch) * max(batch.source.shape[1], batch.target_in.shape[1]) for batch in batches)
    updates = training.accumulate * processes.count()
    seconds = seconds_per_update(model, make_optimiser(model, training), loss, cycle(batches)) * training.accumulate
    return seconds, positions / len(batches) * updates


def _say(recipe: Recipe, plan: Plan, twice: Plan, remarks: Sequence[str], console: Screen) -> None:
    """The plan in a few lines."""
    model = recipe.model
    shape = f"{model.encoder_layers} + {model.decoder_layers} layers, dim {model.dim}, {recipe.training.precision}"
    lines = [
        f"The plan: {shape}; {plan.updates:,} updates, {plan.passes:.1f} passes through the text; about "
        f"{plan.seconds / 60:.0f} minutes, until {_clock(plan.seconds)}.",
        *remarks,
    ]
    if _is_busy():
        lines.append("Other programs keep this machine busy: on a free one the plan would be longer.")
    if plan.is_limited_by_text:
        lines.append("The text is small for the time: more passes would only learn it by heart, so it will end sooner.")
    elif plan.passes < 1:
        lines.append("The time is short for the text: not all of it will be read even once.")
    if not plan.is_limited_by_text:
        lines.append(f"Twice the minutes would give {twice.passes:.1f} passes; a run that has ended can go on.")
    console.print("\n".join(lines))


def _is_busy() -> bool:
    """Whether more wants to run than there are cores, this program among it."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) + 0.5


def _clock(seconds: float) -> str:
    return f"{datetime.now() + timedelta(seconds=seconds):%H:%M}"
