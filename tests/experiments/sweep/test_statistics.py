from __future__ import annotations

import math
from dataclasses import replace

import pytest

from qknorm.experiments.sweep.answer import as_markdown
from qknorm.experiments.sweep.statistics import analyse, area_under_curve, estimate, iterations_to
from qknorm.experiments.sweep.summary import tables
from tests.experiments.sweep.outcomes import NOTHING, result, sweep


def test_the_interval_is_students() -> None:
    result = estimate([1.0, 2.0, 3.0])
    assert result.mean == pytest.approx(2.0)
    assert result.high is not None
    assert result.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5)
    assert estimate([1.0]).low is None


def test_the_area_and_the_way_to_a_loss() -> None:
    run = result({}, [3.0, 2.0, 1.5])
    assert area_under_curve(run) == pytest.approx((2.5 + 1.75) / 2)
    assert iterations_to(2.5, run) == pytest.approx(150)
    assert iterations_to(3.5, run) == 100
    assert iterations_to(1.0, run) == math.inf


def test_every_run_reaches_the_target() -> None:
    results = sweep({"same": NOTHING})
    statistics = analyse(results)
    assert statistics is not None
    assert all(iterations_to(statistics.target_loss, run) < math.inf for run in results)
    assert as_markdown(tables(statistics)).count("| p = 3 |") == 2


def test_a_start_of_its_own_stands_beside_every_start() -> None:
    results = sweep({"same": NOTHING, "comparable": NOTHING})
    sharp = [
        replace(result, settings=result.settings | {"start": 4})
        for result in results
        if result.p == 2 and result.start == "same"
    ]
    statistics = analyse(results + sharp)
    assert statistics is not None
    assert statistics.starts == ["same", "comparable"]
    for start in statistics.starts:
        arms = {arm.label: arm for arm in statistics.of(start)}
        assert arms["p = 2, as sharp as p = 4"].p is None
        assert arms["p = 2, as sharp as p = 4"].differences["best_val_loss"].estimate.count == 10
        assert not arms["p = 2"].differences
