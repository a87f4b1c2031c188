"""A grid of runs from one recipe with lists in it.

runs/NAME/  sweep.json  results.csv  results.json  p-2_start-same_fold-00/{recipe.yaml, metrics.jsonl, result.json, …}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.cells import Backend, Cell, run_missing
from qknorm.runs.language_recipe import SWEEP_KEYS, AnyRecipe, kind_of
from qknorm.runs.recipe import checked, read_recipe, with_overrides
from qknorm.screen import Screen


@dataclass(frozen=True)
class Sweep:
    """All runs of a sweep. Those of one fold stand together, so that an unfinished sweep compares like with like."""

    name: str
    cells: list[Cell]


def plan(path: Path, size: str | None = None, overrides: Sequence[str] = ()) -> Sweep:
    """Every run that a recipe spans, all of them checked before any begins.

    A list spans the grid; `data.folds` holds out every block of the text in turn; `baselines` are further runs, in
    which the keys with lists keep their defaults; `sizes` are named changes, of which --size or `size` chooses one.
    """
    content = read_recipe(path)
    own = {key: content.pop(key) for key in SWEEP_KEYS if key in content}
    kind = kind_of(content, str(path))
    size = size or own.get("size")
    if size is not None:
        content = _resized(content, own.get("sizes") or {}, size, path)
    content = with_overrides(kind, content, overrides)
    name = content.get("name", path.stem) + (f"-{size}" if size is not None else "")
    grid = _axes(kind, content, path)
    folds = _folds(content)
    cells = [
        _cell(kind, content, dict(zip(grid, values, strict=True)) | fold, path)
        for fold in folds
        for values in itertools.product(*grid.values())
    ]
    plain = {part: _without(value, grid, part) for part, value in content.items()}
    for baseline in own.get("baselines") or []:
        if not isinstance(baseline, dict):
            raise InputError(f"{path}: a baseline is keys and values, such as qk_norm: none, not {baseline!r}")
        changed = with_overrides(kind, plain, [f"{key}={value}" for key, value in baseline.items()])
        cells += [_cell(kind, changed, fold, path, baseline) for fold in folds]
    cells.sort(key=lambda cell: cell.settings.get("fold", 0))
    repeated = next((cell.name for cell, after in itertools.pairwise(sorted(cells, key=lambda cell: cell.name))
                     if cell.name == after.name), None)  # fmt: skip
    if repeated is not None:
        raise InputError(f"{path}: {repeated} would run twice; a value stands twice in a list")
    return Sweep(name, cells)


def _resized(content: Mapping[str, Any], sizes: Mapping[str, Any], size: str, path: Path) -> dict[str, Any]:
    if size not in sizes:
        known = f"it has {', '.join(sizes)}" if sizes else "it has no sizes"
        raise InputError(f"{path} has no size {size!r}; {known}")
    merged = dict(content)
    for part, changes in sizes[size].items():
        merged[part] = {**content.get(part, {}), **changes} if isinstance(changes, dict) else changes
    return merged


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


def _without(values: Any, grid: Mapping[_Key, Any], part: str) -> Any:
    if not isinstance(values, dict):
        return values
    return {key: value for key, value in values.items() if (part, key) not in grid}


def _cell(
    kind: type[AnyRecipe],
    content: Mapping[str, Any],
    chosen: Mapping[_Key, Any],
    path: Path,
    baseline: Mapping[str, Any] | None = None,
) -> Cell:
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    settings = dict(baseline or {})
    for (part, key), value in chosen.items():
        merged.setdefault(part, {})[key] = value
        settings[key] = value
    name = "_".join(f"{key}-{_shown(key, value)}" for key, value in settings.items()) or "only"
    return Cell(name, settings, checked(kind, merged | {"name": name}, str(path)))


def _shown(key: str, value: Any) -> str:
    return f"{value:02d}" if key == "fold" else f"{value:g}" if isinstance(value, float) else str(value)


def run(
    sweep: Sweep,
    folder: Path,
    console: Screen,
    backend: Backend = "local",
    jobs: int | None = None,
    address: str | None = None,
) -> dict[str, str]:
    """Compute what is missing; returns why runs failed, by their names."""
    with replacing(folder / "sweep.json") as file:
        cells = [{"name": cell.name, "settings": cell.settings} for cell in sweep.cells]
        file.write(
            json.dumps({"name": sweep.name, "task": sweep.cells[0].recipe.task, "cells": cells}, indent=1).encode()
        )
    return run_missing(sweep.name, sweep.cells, folder, console, backend, jobs, address)
