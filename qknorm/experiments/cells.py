"""Many runs, in parallel, each finished run kept.

A run is done when its result.json is there. So what was killed goes on where it was, runs that were under way from
their last checkpoint, and a second call computes only what is missing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from filelock import FileLock
from joblib import Parallel, delayed, parallel_config
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.runs.language_recipe import AnyRecipe, LanguageRecipe, load_any_recipe
from qknorm.runs.recipe import Recipe, settled
from qknorm.screen import Screen
from qknorm.training.progress import Status, forget_status, read_status
from qknorm.training.start import fetch_text, train

Backend = Literal["local", "dask", "ray"]

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_BETWEEN_LINES = 30.0


@dataclass(frozen=True)
class Cell:
    """One run of many: the name of its folder, what distinguishes it, and its recipe."""

    name: str
    settings: dict[str, Any]
    recipe: AnyRecipe


def run_missing(
    title: str,
    cells: Sequence[Cell],
    folder: Path,
    console: Screen,
    backend: Backend = "local",
    jobs: int | None = None,
    address: str | None = None,
) -> dict[str, str]:
    """Run what is not done yet; returns why runs failed, by their names."""
    _check_same(cells, folder)
    missing = [cell for cell in cells if not is_done(folder / cell.name)]
    if not missing:
        return {}
    texts = {cell.recipe.data.model_dump_json(exclude={"fold"}): cell.recipe for cell in missing}
    for recipe in texts.values():
        fetch_text(recipe)
    for cell in missing:
        forget_status(folder / cell.name)
    failures = {}
    jobs = min(jobs or cores(), len(missing))
    threads = max(1, min(cores() // jobs, torch.get_num_threads()))
    with _backend(backend, jobs, threads, address), _Display(title, len(cells), missing, folder, console) as display:
        runs = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs)(
            delayed(run_cell)(cell, folder / cell.name, threads, os.getpid()) for cell in missing
        )
        for name, outcome in runs:
            if isinstance(outcome, str):
                failures[name] = outcome
            display.finished(name, outcome if isinstance(outcome, str) else _shown(outcome))
    return failures


def run_cell(cell: Cell, folder: Path, threads: int, parent: int) -> tuple[str, dict[str, Any] | str]:
    """Train one cell to its end, in a process that `parent` started; returns its name and result, or why it failed."""
    torch.set_num_threads(threads)
    _die_with(parent)
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever was orphaned by a killed sweep may still be at it, for a second or on another machine.
    with (
        FileLock(folder / ".lock"),
        (folder / "log.txt").open("a", encoding="utf-8") as log,
        warnings.catch_warnings(),
    ):
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=log)
        if not is_done(folder):
            try:
                train(cell.recipe, folder, Screen(file=log, width=120), (folder / "recipe.yaml").exists())
            except Exception as error:
                traceback.print_exc(file=log)
                return cell.name, f"{type(error).__name__}: {' '.join(str(error).split())}"
            _finish(cell.recipe, folder)
        return cell.name, read_result(folder)


@functools.cache
def _die_with(parent: int) -> None:
    """Let a process that `parent` started end when that ends, even by kill -9: nobody would wait for its runs."""
    if os.getppid() != parent:  # it is the parent itself, or one of a cluster
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def is_done(folder: Path) -> bool:
    return (folder / "result.json").is_file()


def read_result(folder: Path) -> dict[str, Any]:
    """What a finished run measured."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finish(recipe: AnyRecipe, folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    if isinstance(recipe, LanguageRecipe):
        result = _losses(lines)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # hundreds of runs would fill the disk
    else:
        result = _scores(lines, folder)
    with replacing(folder / "result.json") as file:
        file.write(json.dumps(result).encode())


def _losses(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    losses = [line["val_loss"] for line in lines]
    return {
        "best_val_loss": min(losses),
        "final_val_loss": losses[-1],
        "best_step": lines[losses.index(min(losses))]["step"],
        "seconds": round(lines[-1]["seconds"] - sum(line["validation_seconds"] for line in lines), 2),
    }


def _scores(lines: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """The mean over language pairs, where there are several."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("test/**/scores.json"))]
    means = {name: sum(one[name] for one in found) / len(found) for name in ("bleu", "bleu_tokenized", "chrf")}
    best = max(line["dev_bleu"] for line in lines)
    return {**means, "best_dev_bleu": best, "updates": lines[-1]["step"], "seconds": lines[-1]["seconds"]}


def _shown(result: Mapping[str, Any]) -> str:
    return f"{result['best_val_loss']:.4f}" if "best_val_loss" in result else f"test BLEU {result['bleu']:.2f}"


def _check_same(cells: Sequence[Cell], folder: Path) -> None:
    """A folder with runs of another recipe is not mixed with these."""
    for cell in cells:
        kept = folder / cell.name / "recipe.yaml"
        if kept.is_file() and not _agrees(load_any_recipe(kept), cell.recipe):
            raise InputError(
                f"{folder / cell.name} was made by another recipe; choose another name=NAME, or delete {folder}"
            )


def _agrees(begun: AnyRecipe, given: AnyRecipe) -> bool:
    if isinstance(begun, Recipe) and isinstance(given, Recipe):
        given = settled(given, begun)
    return begun == given


class _Display:
    """One bar for all runs and one for each that is under way; lines now and then where nobody sees bars."""

    def __init__(self, title: str, total: int, missing: Sequence[Cell], folder: Path, console: Screen) -> None:
        self._folder, self._console = folder, console
        self._left = {cell.name for cell in missing}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=7200,
        )
        self._all = self._progress.add_task(title, total=total, text="")
        self._total, self._bars = total, dict[str, TaskID]()
        self._ended, self._last_lines = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._progress.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._console.is_terminal:
            self._draw({})  # as it stands at the end
        self._progress.stop()

    def finished(self, name: str, outcome: str) -> None:
        self._left.discard(name)
        self._console.print(f"{name}: {outcome}")

    def _look(self) -> None:
        """Read what the runs under way say of themselves, in a thread."""
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            under_way = {name: status for name in sorted(self._left) if (status := read_status(self._folder / name))}
            if self._console.is_terminal:
                self._draw(under_way)
            elif time.monotonic() - self._last_lines >= _SECONDS_BETWEEN_LINES:
                self._last_lines = time.monotonic()
                for name, status in under_way.items():
                    self._console.print(f"{name}: {status}")

    def _draw(self, under_way: Mapping[str, Status]) -> None:
        done = self._total - len(self._left)
        parts = sum(status.step / status.most_steps for status in under_way.values())
        self._progress.update(self._all, completed=done + parts, text=f"{done}/{self._total} runs")
        for name, status in under_way.items():
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(f"  {name}", total=status.most_steps, text="")
            text = f"loss {status.train_loss:.3f}, {status.tokens_per_second:,.0f} tokens/s"
            self._progress.update(self._bars[name], completed=status.step, text=text)
        for name in self._bars.keys() - under_way.keys():
            self._progress.remove_task(self._bars.pop(name))


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
