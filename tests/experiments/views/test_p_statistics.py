from __future__ import annotations

import math
from dataclasses import replace

import pytest

from qknorm.experiments.results import RunResult
from qknorm.experiments.views.p_statistics import analyse, area_under_curve, iterations_to
from tests.experiments.views.outcomes import NOTHING, result, sweep


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


BY_FOLD = (0.012, -0.004, 0.009, -0.006, 0.011, -0.002, 0.008, -0.007)
"""An effect of p = 3 that depends on the fold, and comes to little on the whole."""


def folds_and_seeds(seeds: int) -> list[RunResult]:
    """Every seed of a fold repeats what p = 3 did there, but for a thousandth."""
    return [
        result({"p": p, "fold": fold, "seed": seed}, [3.0, 2.0 + fold / 10 + seed / 1000 * (-1) ** seed + own])
        for fold, effect in enumerate(BY_FOLD)
        for seed in range(seeds)
        for p, own in ((2.0, 0.0), (3.0, effect + seed / 1000 * (-1) ** fold))
    ]


def test_seeds_of_a_fold_are_no_further_folds() -> None:
    found = {}
    for seeds in (1, 5):
        statistics = analyse(folds_and_seeds(seeds))
        assert statistics is not None
        assert statistics.unit == "fold"
        reference, other = statistics.arms
        assert reference.measures["final_val_loss"].count == len(BY_FOLD)
        found[seeds] = other.differences["final_val_loss"]
    assert found[5].estimate.count == len(BY_FOLD)
    assert found[5].t_test == pytest.approx(found[1].t_test, abs=0.2)
    assert found[5].t_test > 0.2
    assert not found[5].is_significant
