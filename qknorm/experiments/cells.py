"""Many runs, each finished run kept.

A run is done when its result.json is there. So what was killed goes on where it was, runs that were under way from
their last checkpoint, and a second call computes only what is missing.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from qknorm.errors import InputError
from qknorm.experiments.gpus import gpu_of_its_own
from qknorm.runs.contents import Result
from qknorm.runs.recipe import AnyRecipe
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.tasks.table import TASKS, train
from qknorm.training.speed import using_threads

REPEATS = ("seed", "fold")
"""What distinguishes runs of the same settings."""

_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class Cell:
    """One run of many: the name of its folder, what distinguishes it, and its recipe."""

    name: str
    settings: dict[str, Any]
    recipe: AnyRecipe
    way_out: str = "choose another name=NAME"
    """What is said to somebody whose run would have the folder of another one."""
    is_baseline: bool = False
    """Whether it stands beside a grid, and not in it."""


class Runner(Protocol):
    """Whoever runs cells: this machine, a cluster, or a queue."""

    def threads(self, runs: int) -> int:
        """How many threads each of this many runs has."""
        ...

    def run_missing(self, title: str, cells: Sequence[Cell], folder: Path, console: Screen) -> dict[str, str]:
        """Run what is not done yet; returns why runs failed, by their names."""
        ...


def missing_in(folder: Path, cells: Sequence[Cell]) -> list[Cell]:
    """The runs that are not done yet."""
    return [cell for cell in cells if not Run(folder / cell.name).is_done]


def check_missing(cells: Sequence[Cell], folder: Path) -> list[Cell]:
    """The same, once nothing stands in their way: folders of their own, the text at hand, no word of a run before."""
    _check_same(cells, folder)
    missing = missing_in(folder, cells)
    texts = {cell.recipe.data.model_dump_json(exclude={"fold"}): cell.recipe for cell in missing}
    for recipe in texts.values():
        TASKS[recipe.task].fetch_text(recipe)
    for cell in missing:
        Run(folder / cell.name).forget_status()
    return missing


def run_cell(
    cell: Cell, folder: Path, threads: int, parent: int, gpus: Sequence[int] | None
) -> tuple[str, Result | str]:
    """Train one cell to its end, in a process that `parent` started; returns its name and result, or why it failed.

    gpus: those of this machine that it may take one of; None for all of them.
    """
    _die_with(parent)
    try:
        return cell.name, _trained(cell, folder, threads, gpus)
    except Exception as error:
        return cell.name, _in_one_line(error)


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _trained(cell: Cell, folder: Path, threads: int, gpus: Sequence[int] | None) -> Result:
    """The result of a cell, which is trained if it is not there; whatever goes wrong stands in its folder, too."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    # Whoever was orphaned by a killed sweep may still be at it, for a second or on another machine.
    with (
        FileLock(folder / ".lock"),
        using_threads(threads),
        gpu_of_its_own(gpus),
        run.log_file.open("a", encoding="utf-8") as log,
        warnings.catch_warnings(),
    ):
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=log)
        try:
            if not run.is_done:
                run.forget_failure()
                train(cell.recipe, folder, Screen(file=log, width=120), resume=run.is_begun)
                _finish(run)
            result: Result = run.result(TASKS[run.kind].result_type)
            return result
        except Exception as error:
            traceback.print_exc(file=log)
            with contextlib.suppress(OSError):  # of a full disk, which may be what went wrong
                run.save_failure(_in_one_line(error))
            raise


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


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finish(run: Run) -> None:
    task = TASKS[run.kind]
    run.save_result(task.result(run))
    if not task.keeps_checkpoints:
        shutil.rmtree(run.checkpoints.folder, ignore_errors=True)


def _check_same(cells: Sequence[Cell], folder: Path) -> None:
    """A folder with runs of another recipe, or of another text, is not mixed with these."""
    for cell in cells:
        run = Run(folder / cell.name)
        if run.is_begun and not _is_same(run.recipe, cell.recipe):
            raise InputError(f"{run.folder} was made by another recipe; {cell.way_out}, or delete {run.folder}")
    check_same_text(folder / cell.name for cell in cells)


def check_same_text(folders: Iterable[Path]) -> None:
    """Runs whose recipes name the same text must have learned the same: a file may have changed in between."""
    first: dict[str, tuple[Path, str]] = {}
    for run in (Run(folder) for folder in folders):
        text = TASKS[run.kind].digest_of_text(run) if run.is_begun else None
        if text is None:
            continue
        other, expected = first.setdefault(text_of(run), (run.folder, text))
        if text != expected:
            raise InputError(
                f"{other} and {run.folder} were trained on different text, though their recipes name the same: it was "
                "changed in between; move the run with the wrong text away, and call this again"
            )


def text_of(run: Run) -> str:
    """The text that its recipe names; which fold of it, and BPE-dropout, leave the digest as it is."""
    return run.recipe.data.model_dump_json(exclude={"fold", "bpe_dropout"})


def _is_same(begun: AnyRecipe, given: AnyRecipe) -> bool:
    return begun.task == given.task and TASKS[given.task].is_same(begun, given)
