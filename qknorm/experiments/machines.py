"""Many runs at a time: in processes of this machine, or on a cluster of Dask's."""

from __future__ import annotations

import contextlib
import itertools
import os
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from joblib import Parallel, delayed, parallel_config

from qknorm.errors import InputError, needs
from qknorm.experiments.cells import Cell, check_missing, cores, run_cell
from qknorm.experiments.display import Display
from qknorm.runs.contents import Result
from qknorm.screen import Screen
from qknorm.tasks.table import TASKS

Backend = Literal["local", "dask"]
Outcome = tuple[str, Result | str]

_SECONDS_FOR_A_WORKER = 30.0


@dataclass(frozen=True)
class Machines:
    """Where runs take place, and how many at a time."""

    backend: Backend = "local"
    jobs: int | None = None
    """Runs at a time; without it one for each core, or for each GPU if there are some; elsewhere all."""
    address: str | None = None
    """Of a cluster; one is started here without it."""
    gpus: Sequence[int] | None = None
    """Those of this machine that may be used; all without it. Of another machine a worker takes any."""

    def threads(self, runs: int) -> int:
        """How many threads each of this many runs has: all cores are shared evenly among those under way."""
        return max(1, min(cores() // self._at_a_time(runs), torch.get_num_threads()))

    def run_missing(self, title: str, cells: Sequence[Cell], folder: Path, console: Screen) -> dict[str, str]:
        """Run what is not done yet; returns why runs failed, by their names."""
        missing = check_missing(cells, folder)
        if not missing:
            return {}
        jobs, threads = self._at_a_time(len(missing)), self.threads(len(missing))
        gpus_of_worker = None if self.address else self._gpus
        work = [(cell, (folder / cell.name).absolute(), threads, os.getpid(), gpus_of_worker) for cell in missing]
        failures, tasks = {}, {cell.name: TASKS[cell.recipe.task] for cell in missing}
        with (
            _told_when_it_ends(self.backend),
            self._outcomes(work, jobs, threads) as outcomes,
            Display(title, len(cells), missing, folder, console) as display,
        ):
            for name, outcome in outcomes:
                if isinstance(outcome, str):
                    failures[name] = outcome
                display.finished(name, outcome if isinstance(outcome, str) else tasks[name].told(outcome))
        return failures

    @property
    def _gpus(self) -> Sequence[int]:
        return range(torch.cuda.device_count()) if self.gpus is None else self.gpus

    def _at_a_time(self, runs: int) -> int:
        if self.address:  # of machines that may have more cores and GPUs than this one
            return min(self.jobs or runs, runs)
        return min(self.jobs or len(self._gpus) or cores(), runs, len(self._gpus) or runs)

    @contextlib.contextmanager
    def _outcomes(self, work: Sequence[tuple[Any, ...]], jobs: int, threads: int) -> Iterator[Iterable[Outcome]]:
        """What `run_cell` answers to each list of arguments, as it comes: from processes here, or from a cluster.

        A cluster without an address is one of processes here.
        """
        if self.backend == "local":
            with parallel_config(backend="loky", inner_max_num_threads=threads):
                yield _by_joblib(work, jobs)
            return
        with needs("dask", "--backend dask"):
            from distributed import Client
        here = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        client: Any = Client
        with client(self.address) if self.address else client(**here) as connected:
            _check_workers(connected)
            yield _by_dask(connected, work, jobs)


def _by_joblib(work: Sequence[tuple[Any, ...]], jobs: int) -> Iterable[Outcome]:
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs)
    outcomes: Iterable[Outcome] = parallel(delayed(run_cell)(*arguments) for arguments in work)
    return outcomes


def _by_dask(client: Any, work: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Outcome]:
    """Not by joblib, which trains on this machine where a cluster has room for one run at a time only."""
    from distributed import as_completed

    tasks = (client.submit(_run_from, Path.cwd(), *arguments, pure=False) for arguments in work)
    completed: Any = as_completed
    under_way = completed(itertools.islice(tasks, jobs))
    for ended in under_way:
        under_way.update(itertools.islice(tasks, 1))
        yield ended.result()


def _check_workers(client: Any) -> None:
    """There are some, if only once a first task waits for them, and each trains one run at a time.

    Runs in one process would share torch's random numbers and its threads, and not begin with the same weights.
    """
    start = f"with: dask worker {client.scheduler.address} --nworkers N --nthreads 1"
    _first = client.submit(os.getpid, pure=False)
    try:
        client.wait_for_workers(1, _SECONDS_FOR_A_WORKER)
    except TimeoutError:
        raise InputError(
            f"the Dask cluster has no worker after {_SECONDS_FOR_A_WORKER:g} s; start some {start}"
        ) from None
    most = max(client.nthreads().values(), default=1)
    if most > 1:
        raise InputError(
            f"a worker of the Dask cluster has up to {most} threads, and runs in one process would share their random "
            f"numbers; start workers {start}"
        )


def _run_from(place: Path, *arguments: Any) -> Outcome:
    """`run_cell` in the folder of whoever wants it, where that is shared: from there a recipe may name its text."""
    with contextlib.chdir(place) if place.is_dir() else contextlib.nullcontext():
        return run_cell(*arguments)


@contextlib.contextmanager
def _told_when_it_ends(backend: Backend) -> Iterator[None]:
    """Runs do not raise, so whatever does is the machines: a cluster that went away, a process that was killed."""
    try:
        yield
    except InputError:
        raise
    except (Exception, CancelledError) as error:
        who = "a process that ran some of them has ended" if backend == "local" else f"the {backend} cluster is gone"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{who} ({reason}); what is done is kept, and the same command goes on with the rest"
        ) from error
