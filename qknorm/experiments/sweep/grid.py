"""A grid of runs from one recipe with lists in it.

runs/NAME/  sweep.json  results.csv  results.json  p-2_start-same_fold-00/{recipe.yaml, metrics.jsonl, result.json, …}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.cells import REPEATS, Cell, Runner, check_missing
from qknorm.experiments.minutes import by_one_plan
from qknorm.experiments.sweep.about import OF_LOSSES, About
from qknorm.experiments.sweep.results import PLAN
from qknorm.runs.any_recipe import SWEEP_KEYS, kind_of
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.norm_recipe import LpRecipe, options_apart
from qknorm.runs.recipe import AnyRecipe, Recipe, checked, merged, read_recipe, with_overrides
from qknorm.screen import Screen
from qknorm.tasks.table import TASKS


@dataclass(frozen=True)
class Sweep:
    """All choices of a sweep. Those of one seed and fold stand together: an unfinished sweep compares like with like.

    Choices that come to the same, as p = 2 does under either start, have one run, which has the name of the first.
    """

    name: str
    cells: list[Cell]
    about: About

    @property
    def runs(self) -> list[Cell]:
        return list({cell.name: cell for cell in self.cells}.values())


def plan(path: Path, size: str | None = None, overrides: Sequence[str] = ()) -> Sweep:
    """Every run that a recipe spans, all of them checked before any begins.

    A list spans the grid; `data.folds` holds out every block of the text in turn; `baselines` are other models that
    span the same grid, but for the lists of `model`; `sizes` are named changes, of which --size or `size` chooses one.
    """
    content = read_recipe(path)
    own = {key: content.pop(key) for key in SWEEP_KEYS if key in content}
    kind = kind_of(content, str(path))
    size = size or own.get("size")
    shrunk: dict[str, Any] = {}
    if size is not None:
        content, shrunk = _resized(content, own.get("sizes") or {}, size, path)
    about = {key: own[key] for key in About.model_fields if key in own}
    content = with_overrides(kind, content, overrides)
    name = content.get("name", path.stem)
    if not isinstance(name, str):
        raise InputError(f"{path}: name must be text, not {name!r}")
    name += f"-{size}" if size is not None else ""
    cells = _span(kind, content, path)
    model = content.get("model") or {}
    plain = {**content, "model": {key: model[key] for key in model if ("model", key) not in _axes(kind, content, path)}}
    for baseline in own.get("baselines") or []:
        if not isinstance(baseline, dict):
            raise InputError(f"{path}: a baseline is keys and values, such as qk_norm: none, not {baseline!r}")
        changed = with_overrides(kind, plain, [f"{key}={value}" for key, value in baseline.items()])
        cells += _span(kind, changed, path, baseline)
    cells.sort(key=lambda cell: [cell.settings.get(key, 0) for key in REPEATS])
    repeated = next((cell.name for cell, after in itertools.pairwise(sorted(cells, key=lambda cell: cell.name))
                     if cell.name == after.name), None)  # fmt: skip
    if repeated is not None:
        raise InputError(f"{path}: {repeated} would run twice; a value stands twice in a list")
    return Sweep(name, _sharing_runs(cells), _about(about | shrunk, cells[0].recipe.task, path))


def _about(content: Mapping[str, Any], task: str, path: Path) -> About:
    """What the recipe says of its sweep, if that can be shown of its task."""
    about = checked(About, content, str(path))
    if about.shows in OF_LOSSES and not TASKS[task].is_cross_validated:
        raise InputError(
            f"{path}: shows: {about.shows} is about losses of language models, which task: {task} does not have; "
            "use shows: scores, or leave it out"
        )
    return about


def _resized(
    content: Mapping[str, Any], sizes: Mapping[str, Any], size: str, path: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content at a size, and what that says it has shrunk."""
    if size not in sizes:
        known = f"it has {', '.join(sizes)}" if sizes else "it has no sizes"
        raise InputError(f"{path} has no size {size!r}; {known}")
    changes = dict(sizes[size])
    shrunk = {"shrunk": changes.pop("shrunk")} if "shrunk" in changes else {}
    return merged(content, changes), shrunk


_Key = tuple[str, str]  # part and key, such as model and p


def _axes(kind: type[AnyRecipe], content: Mapping[str, Any], path: Path) -> dict[_Key, list[Any]]:
    """The lists in a recipe, except where the recipe itself wants one."""
    axes = {}
    for part, values in content.items():
        if not isinstance(values, dict):
            continue
        fields = getattr(kind.model_fields[part].annotation, "model_fields", {}) if part in kind.model_fields else {}
        for key, value in values.items():
            if not isinstance(value, list) or (key in fields and _accepts(fields[key].annotation, value)):
                continue
            if not value:
                raise InputError(f"{path}: {part}.{key} is an empty list; a sweep needs at least one value there")
            axes[part, key] = value
    return axes


def _accepts(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _folds(content: Mapping[str, Any]) -> list[dict[_Key, Any]]:
    data = content.get("data")
    folds = data.get("folds") if isinstance(data, dict) else None
    if not isinstance(folds, int) or "fold" in content["data"]:
        return [{}]
    return [{("data", "fold"): fold} for fold in range(folds)]


def _span(
    kind: type[AnyRecipe], content: Mapping[str, Any], path: Path, baseline: Mapping[str, Any] | None = None
) -> list[Cell]:
    """A run for every choice of a value from each list, in every fold."""
    grid = _axes(kind, content, path)
    return [
        _cell(kind, content, dict(zip(grid, values, strict=True)) | fold, path, baseline or {})
        for fold in _folds(content)
        for values in itertools.product(*grid.values())
    ]


def _cell(
    kind: type[AnyRecipe],
    content: Mapping[str, Any],
    chosen: Mapping[_Key, Any],
    path: Path,
    baseline: Mapping[str, Any],
) -> Cell:
    settings = dict(baseline)
    for (part, key), value in chosen.items():
        content = merged(content, {part: {key: value}})
        settings |= {name: _in_words(name, value) if isinstance(value, Mapping) else value
                     for name, value in options_apart({key: value}).items()}  # fmt: skip
    name = "_".join(f"{key}-{_in_words(key, value)}" for key, value in settings.items()) or "only"
    return Cell(name, settings, checked(kind, merged(content, {"name": name}), str(path)), is_baseline=bool(baseline))


def _sharing_runs(cells: Sequence[Cell]) -> list[Cell]:
    first: dict[str, Cell] = {}
    firsts = [first.setdefault(_what_it_does(cell.recipe), cell) for cell in cells]
    return [replace(cell, name=own.name, recipe=own.recipe) for cell, own in zip(cells, firsts, strict=True)]


def _what_it_does(recipe: AnyRecipe) -> str:
    """Equal for runs that come to the same. What minutes will decide is not known yet, so defaults say nothing then."""
    done = recipe.model_dump(exclude={"name"}, exclude_unset=isinstance(recipe, Recipe) and recipe.minutes is not None)
    if isinstance(recipe, LanguageRecipe):
        norm = recipe.model.qk_norm
        if isinstance(norm, LpRecipe):
            done["model"]["qk_norm"]["start"] = norm.sharp_as
    return json.dumps(done)


def _in_words(key: str, value: Any) -> str:
    if isinstance(value, Mapping):  # a kind of normalisation with its options
        return "-".join(str(word) for option in value.items() for word in option if word != "kind")
    return f"{value:02d}" if key == "fold" else f"{value:g}" if isinstance(value, float) else str(value)


def run(sweep: Sweep, folder: Path, console: Screen, runner: Runner) -> dict[str, str]:
    """Compute what is missing; returns why runs failed, by their names. What can be refused is, before planning."""
    check_missing(sweep.runs, folder)
    runs = by_one_plan(sweep.runs, folder, console, runner.threads(len(sweep.runs)))
    plan = {
        "name": sweep.name,
        "task": sweep.cells[0].recipe.task,
        "about": sweep.about.model_dump(exclude_defaults=True),
        "cells": [
            {"name": cell.name, "settings": cell.settings, "is_baseline": cell.is_baseline} for cell in sweep.cells
        ],
    }
    with replacing(folder / PLAN) as file:
        file.write(json.dumps(plan, indent=1, ensure_ascii=False).encode())
    return runner.run_missing(sweep.name, runs, folder, console)
