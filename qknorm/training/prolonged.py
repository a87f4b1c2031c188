"""A run that has ended goes on, for some more minutes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qknorm import processes
from qknorm.data.prepared import Prepared
from qknorm.errors import InputError
from qknorm.runs.recipe import Recipe, checked, merged
from qknorm.runs.translator_run import TranslatorRun
from qknorm.screen import Screen, duration
from qknorm.training import planner
from qknorm.training.parents import grown_by_plan, shape_of
from qknorm.training.planned import (
    clock_after,
    positions_per_update,
    shape_within,
    speed_of,
    text_size,
    training_positions,
)
from qknorm.training.planner import Length, Shape
from qknorm.training.trainer import Progress

_READ_ENOUGH = 0.9
"""Of the passes that are of use: batches are padded, and updates rounded down."""


def prolong(run: TranslatorRun, minutes: float, prepared: Prepared, console: Screen) -> Recipe:
    """Let a run that has ended go on for this many minutes, from where its learning rate began to fall.

    The run is changed last: what is refused here leaves it as it was. Returns its new recipe.
    """
    recipe = run.recipe
    stable, ended = _stable_and_end(run)
    done = int(stable.name.removeprefix("step-"))
    text = text_size(prepared)
    fresh = shape_within(minutes * 60, prepared, text)
    grown = grown_recipe(recipe, fresh)
    speed = speed_of(grown, prepared)
    more = planner.length_for(text, minutes * 60, *speed)
    passes = positions_per_update(recipe, prepared) / text.positions
    prolonged = prolonged_recipe(grown, done, more, (recipe.model.dim, passes) if grown != recipe else None)
    total = prolonged.training.total_updates
    if total <= ended:
        needed = planner.length_for(text, minutes * 60, *speed, ended - done).seconds
        raise InputError(
            f"{minutes:g} minutes are too few: {run.folder} would go on from update {done:,}, before its learning rate "
            f"fell, and {ended:,} updates, as many as it had, take about {duration(needed)} from there; give it more"
        )
    console.print(
        f"{total - done:,} updates after the {done:,} before the learning rate fell, {total:,} in all instead of "
        f"{ended:,}; about {duration(more.seconds)}, until {clock_after(more.seconds)}; "
        f"dropout {prolonged.model.dropout:g}",
    )
    shape, before = shape_of(grown.model), shape_of(recipe.model)
    if shape != before:
        console.print(f"It grows to {shape}, {shape.weights / before.weights:.1f} times its size, with what it knows.")
    if fresh.weights > shape.weights:
        console.print(f"A new run of {minutes:g} minutes would have {fresh}, to which this one cannot grow.")
    run.checkpoints.rewind(stable)
    run.save_recipe(prolonged)
    return prolonged


def is_worth_prolonging(recipe: Recipe, prepared: Prepared, progress: Progress) -> bool:
    """Whether more minutes promise a better model: its scores still rose, on a text that it does not know by heart."""
    if recipe.training.decay is None or progress.shortened is not None:
        return False
    passes = progress.step * positions_per_update(recipe, prepared) / training_positions(prepared)
    return passes < _READ_ENOUGH * planner.MOST_PASSES


def _stable_and_end(run: TranslatorRun) -> tuple[Path, int]:
    """The checkpoint from before the learning rate fell, and after how many updates the run had ended."""
    checkpoints, command = run.checkpoints, processes.command_to_resume(run.folder, processes.count())
    newest, stable = checkpoints.newest(), checkpoints.stable()
    if stable is None:
        raise InputError(
            f"{run.folder} cannot be prolonged: it has no checkpoint from before its learning rate fell "
            f"(training.schedule: trapezoid makes one); if it was interrupted, go on with: {command}"
        )
    progress = checkpoints.progress(newest or stable)
    if not _has_ended(progress, run.recipe):
        raise InputError(f"{run.folder} has not ended yet, so it cannot be prolonged; go on with: {command}")
    checkpoints.refuse_other_processes(stable)
    return stable, int(progress["step"])


def grown_recipe(recipe: Recipe, planned: Shape) -> Recipe:
    """The recipe with a larger model, if a plan has one. Its rate and batches become those of such a model."""
    model, training = grown_by_plan(recipe.model, planned), recipe.training
    has_parent = recipe.parent is not None
    before, after = (
        {"peak": planner.peak_for(dim, has_parent), "budget": planner.budget_for(dim, training.optimizer)}
        for dim in (recipe.model.dim, model["dim"])
    )
    changed = {key: value for key, value in after.items() if getattr(training, key) == before[key]}
    return checked(Recipe, merged(recipe.model_dump(), {"model": model, "training": changed}), "the grown recipe")


def prolonged_recipe(recipe: Recipe, done: int, more: Length, grown_from: tuple[int, float] | None = None) -> Recipe:
    """The recipe of the longer run. Dropout becomes that of so many passes, unless somebody chose it otherwise.

    grown_from: the width of the run until now, and how many passes an update of it was.
    """
    training = planner.prolonged(done, more, recipe.training.max_validations, grows=grown_from is not None)
    now = recipe.model.dim, more.passes / more.updates
    before, after = (
        planner.dropout_settings(updates * passes, dim)
        for updates, (dim, passes) in (
            (recipe.training.total_updates, grown_from or now),
            (training["max_updates"], now),
        )
    )
    is_planned = recipe.model.model_dump(include=set(before)) == before
    changes = {"training": training, "model": after if is_planned else {}}
    return checked(Recipe, merged(recipe.model_dump(), changes), "the prolonged recipe")


def _has_ended(progress: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether a run that was last saved with this progress had come to its planned or shortened end."""
    total = recipe.training.total_updates
    planned, end = progress["shortened"] or (total, total)
    return bool(progress["validated"] == progress["step"] == (end if planned == total else total))
