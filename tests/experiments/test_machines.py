from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from qknorm.errors import InputError
from qknorm.experiments import machines
from qknorm.experiments.cells import Cell, run_cell
from qknorm.experiments.machines import Machines
from qknorm.experiments.spanned import plan_sweep
from qknorm.screen import Screen
from tests.sweeps import results_in, run


def test_a_cluster_that_goes_away_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_sweep(folder / "tiny.yaml", None, ["folds=null"])

    @contextmanager
    def for_one_run(_self: Machines, work: list[Any], *_: int) -> Iterator[Iterator[Any]]:
        def outcomes() -> Iterator[Any]:
            yield run_cell(*work[0])
            raise ConnectionError("nobody there")

        yield outcomes()

    with monkeypatch.context() as gone:
        gone.setattr(Machines, "_outcomes", for_one_run)
        with pytest.raises(
            InputError, match=r"the dask cluster is gone .*nobody there.*; what is done is kept, and the"
        ):
            planned.run(folder / "out", Screen(quiet=True), Machines("dask", jobs=2))
    assert [result.status for result in results_in(folder / "out")] == ["done", "missing", "missing"]
    kept = (folder / "out" / "p-2" / "result.json").stat()
    assert run(planned, folder / "out") == {}
    assert {result.status for result in results_in(folder / "out")} == {"done"}
    assert (folder / "out" / "p-2" / "result.json").stat() == kept


def three_runs(where: Machines) -> dict[str, str]:
    return plan_sweep(Path("tiny.yaml"), None, ["folds=null"]).run(Path("out"), Screen(quiet=True), where)


@contextmanager
def dask_cluster(workers: int, threads: int, processes: bool = False) -> Iterator[str]:
    """Its address."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=threads, processes=processes, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def instead_of_training(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    def run_cell(cell: Cell, *_: object) -> tuple[str, str]:
        what()
        return cell.name, "not trained"

    monkeypatch.setattr(machines, "run_cell", run_cell)


@pytest.mark.slow
def test_a_worker_that_began_elsewhere_trains_where_the_command_is_called(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder and text are given from where that is. Also where the cluster has room for one run at a time only."""
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    instead_of_training(monkeypatch, lambda: None)  # in this process: it is the worker that trains
    with dask_cluster(workers=1, threads=1, processes=True) as address:
        monkeypatch.chdir(folder)
        assert three_runs(Machines("dask", address=address)) == {}
    assert {result.status for result in results_in(folder / "out")} == {"done"}


@pytest.mark.usefixtures("folder")
def test_a_worker_that_would_train_several_runs_in_one_process_is_refused() -> None:
    message = r"has up to 2 threads, .* share .*; start workers with: dask worker \S+ --nworkers N --nthreads 1$"
    with dask_cluster(workers=1, threads=2) as address, pytest.raises(InputError, match=message):
        three_runs(Machines("dask", address=address))


@pytest.mark.usefixtures("folder")
def test_a_cluster_without_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SECONDS_FOR_A_WORKER", 0.1)
    with dask_cluster(workers=0, threads=1) as address, pytest.raises(InputError, match=r"no worker .*; start some"):
        three_runs(Machines("dask", address=address))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has one core and one GPU, which says nothing of a cluster elsewhere."""
    monkeypatch.setattr(machines, "cores", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.mark.usefixtures("folder", "small")
def test_a_dask_cluster_elsewhere_has_all_runs_at_a_time_or_as_many_as_somebody_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_three, room = threading.Barrier(3), threading.Semaphore(2)

    def in_turn() -> None:
        assert room.acquire(blocking=False)
        time.sleep(0.1)  # time for one run too many to come
        room.release()

    with dask_cluster(workers=4, threads=1) as address:
        instead_of_training(monkeypatch, lambda: all_three.wait(timeout=60))
        assert len(three_runs(Machines("dask", address=address))) == 3
        instead_of_training(monkeypatch, in_turn)
        assert len(three_runs(Machines("dask", jobs=2, address=address))) == 3
