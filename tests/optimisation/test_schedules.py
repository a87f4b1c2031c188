from __future__ import annotations

import pytest

from qknorm.optimisation.schedules import SCHEDULES, factor_after, peak_of_paper


def test_the_papers_warm_up_ends_flat() -> None:
    peak = peak_of_paper(512, 8000)
    schedule = SCHEDULES["warmup-flat"](peak, warmup=8000)
    assert peak == pytest.approx(512**-0.5 * 8000**-0.5)
    assert schedule.rate(4000) == pytest.approx(peak / 2)
    assert schedule.rate(8000) == schedule.rate(100_000) == pytest.approx(peak)


def test_vaswani_is_his_formula() -> None:
    schedule = SCHEDULES["vaswani"](peak_of_paper(512, 4000), warmup=4000)
    for step in (1, 100, 4000, 4001, 50_000):
        assert schedule.rate(step) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


def test_the_baseline_is_constant() -> None:
    assert {SCHEDULES["constant"](3e-4).rate(step) for step in (1, 10, 10**6)} == {3e-4}


def test_cosine_falls_to_a_tenth() -> None:
    schedule = SCHEDULES["cosine"](1e-3, warmup=100, total=5000)
    assert schedule.rate(100) == pytest.approx(1e-3)
    assert schedule.rate(2550) == pytest.approx(0.55e-3)
    assert schedule.rate(5000) == schedule.rate(9000) == pytest.approx(1e-4)


def test_a_trapezoid_is_up_flat_and_down_to_nearly_zero() -> None:
    schedule = SCHEDULES["trapezoid"](1e-3, warmup=100, total=1000, decay=399)
    assert schedule.decay_start == 601
    assert schedule.rate(50) == pytest.approx(0.5e-3)
    assert schedule.rate(100) == schedule.rate(601) == pytest.approx(1e-3)
    assert schedule.rate(801) == pytest.approx(0.5e-3)
    assert 0 < schedule.rate(1000) == pytest.approx(1e-3 / 400)


def test_before_its_decay_a_trapezoid_does_not_know_how_long_it_is() -> None:
    short, long = (SCHEDULES["trapezoid"](1e-3, 100, total, decay=300) for total in (1000, 5000))
    assert short.decay_start is not None
    assert all(short.rate(step) == long.rate(step) for step in range(1, short.decay_start + 1))
    assert short.rate(short.decay_start + 1) < long.rate(short.decay_start + 1)


@pytest.mark.parametrize("kind", [kind for kind in SCHEDULES if SCHEDULES[kind].warms_up])
def test_a_warm_up_is_a_straight_line(kind: str) -> None:
    schedule = SCHEDULES[kind](1e-3, warmup=100, total=1000, decay=300)
    assert [schedule.rate(step) for step in (1, 50, 100)] == pytest.approx([1e-5, 0.5e-3, 1e-3])


@pytest.mark.parametrize(
    ("scores", "lowered"),
    [
        ([10, 11, 12, 9], True),
        ([10, 11, 12, 10], False),  # not strictly below each
        ([12, 9], False),  # fewer than three before it
        ([5, 20, 21, 22, 19], True),
    ],
)
def test_the_rate_falls_when_a_score_is_below_each_of_the_three_before(scores: list[float], lowered: bool) -> None:
    assert factor_after(scores) == (0.8 if lowered else 1.0)
