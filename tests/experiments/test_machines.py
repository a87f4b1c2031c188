from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qknorm.errors import InputError
from qknorm.experiments.cells import run_cell
from qknorm.experiments.machines import Machines
from qknorm.experiments.sweep import grid as sweeps
from qknorm.experiments.sweep.grid import plan
from qknorm.experiments.sweep.results import load_results
from qknorm.screen import Screen
from tests.sweeps import run


def test_a_cluster_that_goes_away_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(folder / "tiny.yaml", None, ["folds=null"])

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
            sweeps.run(planned, folder / "out", Screen(quiet=True), Machines("dask", jobs=2))
    assert [result.status for result in load_results(folder / "out")] == ["done", "missing", "missing"]
    kept = (folder / "out" / "p-2" / "result.json").stat()
    assert run(planned, folder / "out") == {}
    assert {result.status for result in load_results(folder / "out")} == {"done"}
    assert (folder / "out" / "p-2" / "result.json").stat() == kept
