"""A grid of runs from one recipe with lists in it, in parallel, each finished run kept.

runs/NAME/  sweep.json  results.csv  results.json  p-2_start-same_fold-00/{recipe.yaml, metrics.jsonl, result.json, …}

A run is done when its result.json is there. So a sweep that was killed goes on where it was, runs that were under way
from their last checkpoint, and a second call computes only what is missing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock
from joblib import Parallel, delayed, parallel_config
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.training import language
from qknorm.training.language_recipe import LanguageRecipe, kind_of, load_any_recipe
from qknorm.training.recipe import Part, checked, read_recipe, with_overrides

Backend = Literal["local", "dask", "ray"]
_SWEEP_KEYS = ("size", "sizes", "baselines")


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what it is called, what distinguishes it, and its recipe."""

    name: str
    settings: dict[str, Any]
    recipe: LanguageRecipe


@dataclass(frozen=True)
class Sweep:
    """All runs of a sweep. Those of one fold stand together, so that an unfinished sweep compares like with like."""

    name: str
    cells: list[Cell]


# From a recipe to a plan.


def plan(path: Path, size: str | None = None, overrides: Sequence[str] = ()) -> Sweep:
    """Every run that a recipe spans, all of them checked before any begins.

    A list spans the grid; `data.folds` holds out every block of the text in turn; `baselines` are further runs, in
    which the keys with lists keep their defaults; `sizes` are named changes, of which --size or `size` chooses one.
    """
    content = read_recipe(path)
    own = {key: content.pop(key) for key in _SWEEP_KEYS if key in content}
    kind = kind_of(content, str(path))
    if kind is not LanguageRecipe:
        raise InputError(f"{path}: a sweep needs a recipe with `task: language`")
    size = size or own.get("size")
    if size is not None:
        content = _resized(content, own.get("sizes") or {}, size, path)
    content = with_overrides(kind, content, overrides)
    name = content.get("name", path.stem) + (f"-{size}" if size is not None else "")
    grid = _axes(kind, content, path)
    folds = _folds(content)
    cells = [
        _cell(content, dict(zip(grid, values, strict=True)) | fold, path)
        for fold in folds
        for values in itertools.product(*grid.values())
    ]
    plain = {part: _without(value, grid, part) for part, value in content.items()}
    for baseline in own.get("baselines") or []:
        if not isinstance(baseline, dict):
            raise InputError(f"{path}: a baseline is keys and values, such as qk_norm: none, not {baseline!r}")
        changed = with_overrides(kind, plain, [f"{key}={value}" for key, value in baseline.items()])
        cells += [_cell(changed, fold, path, baseline) for fold in folds]
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


def _axes(kind: type[Part], content: Mapping[str, Any], path: Path) -> dict[_Key, list[Any]]:
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
    content: Mapping[str, Any], chosen: Mapping[_Key, Any], path: Path, baseline: Mapping[str, Any] | None = None
) -> Cell:
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    settings = dict(baseline or {})
    for (part, key), value in chosen.items():
        merged.setdefault(part, {})[key] = value
        settings[key] = value
    name = "_".join(f"{key}-{_shown(key, value)}" for key, value in settings.items()) or "only"
    return Cell(name, settings, checked(LanguageRecipe, merged | {"name": name}, str(path)))


def _shown(key: str, value: Any) -> str:
    return f"{value:02d}" if key == "fold" else f"{value:g}" if isinstance(value, float) else str(value)


# Running the plan.


def run(
    sweep: Sweep, folder: Path, console: Console, backend: Backend, jobs: int | None, address: str | None
) -> dict[str, str]:
    """Compute what is missing; returns why runs failed, by their names."""
    _check_same(sweep, folder)
    _write_plan(sweep, folder)
    missing = [cell for cell in sweep.cells if not is_done(folder / cell.name)]
    if not missing:
        return {}
    # The text is fetched, or found to be too short, here and not in every process.
    data = missing[0].recipe.data
    language.fold_of(data, language.read_text(data))
    failures = {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = min(jobs or cores, len(missing))
    threads = max(1, cores // jobs)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(), TextColumn("{task.fields[newest]}"), console=console, speed_estimate_period=7200,
    )  # fmt: skip
    with _backend(backend, jobs, threads, address), progress:
        bar = progress.add_task(
            sweep.name, total=len(sweep.cells), completed=len(sweep.cells) - len(missing), newest=""
        )
        runs = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs)(
            delayed(run_cell)(cell, folder / cell.name, threads) for cell in missing
        )
        for name, outcome in runs:
            if isinstance(outcome, str):
                failures[name] = outcome
            newest = f"{name}: {outcome if isinstance(outcome, str) else f'{outcome:.4f}'}"
            progress.update(bar, advance=1, newest=newest)
            if not console.is_terminal:
                console.print(newest, highlight=False, soft_wrap=True)
    return failures


def run_cell(cell: Cell, folder: Path, threads: int) -> tuple[str, float | str]:
    """Train one cell to its end, in whatever process; returns its name and its best loss, or why it failed."""
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever was orphaned by a killed sweep may still be at it.
    with FileLock(folder / ".lock"), (folder / "log.txt").open("a", encoding="utf-8") as log:
        if not is_done(folder):
            try:
                language.train(cell.recipe, folder, Console(file=log, width=120), (folder / "recipe.yaml").exists())
            except Exception as error:
                traceback.print_exc(file=log)
                return cell.name, f"{type(error).__name__}: {' '.join(str(error).split())}"
            _finish(folder)
        best: float = json.loads((folder / "result.json").read_text())["best_val_loss"]
        return cell.name, best


def is_done(folder: Path) -> bool:
    return (folder / "result.json").is_file()


def _finish(folder: Path) -> None:
    """Write the result and drop the checkpoints: hundreds of runs would fill the disk."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["val_loss"] for line in lines]
    result = {
        "best_val_loss": min(losses),
        "final_val_loss": losses[-1],
        "best_step": lines[losses.index(min(losses))]["step"],
        "seconds": round(lines[-1]["seconds"] - sum(line["validation_seconds"] for line in lines), 2),
    }
    with replacing(folder / "result.json") as file:
        file.write(json.dumps(result).encode())
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _check_same(sweep: Sweep, folder: Path) -> None:
    """A folder with runs of another recipe is not mixed with these."""
    for cell in sweep.cells:
        kept = folder / cell.name / "recipe.yaml"
        if kept.is_file() and load_any_recipe(kept) != cell.recipe:
            raise InputError(
                f"{folder / cell.name} was made by another recipe; choose another name=NAME, or delete {folder}"
            )


def _write_plan(sweep: Sweep, folder: Path) -> None:
    with replacing(folder / "sweep.json") as file:
        cells = [{"name": cell.name, "settings": cell.settings} for cell in sweep.cells]
        file.write(json.dumps({"name": sweep.name, "cells": cells}, indent=1).encode())


@contextlib.contextmanager
def _backend(backend: Backend, jobs: int, threads: int, address: str | None) -> Iterator[None]:
    """Where joblib runs things: processes here, or a cluster (one of processes here, without an address)."""
    if backend == "local":
        with parallel_config(backend="loky", inner_max_num_threads=threads):
            yield
        return
    try:
        if backend == "dask":
            from distributed import Client
        else:
            import ray
            from ray.util.joblib import register_ray
    except ImportError:
        raise InputError(f"--backend {backend} needs: pip install 'qknorm[{backend}]'") from None
    if backend == "dask":
        here = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        with Client(address) if address else Client(**here), parallel_config(backend="dask"):
            yield
    else:
        ray.init(address=address, num_cpus=None if address else jobs)
        register_ray()
        with parallel_config(backend="ray"):
            yield
