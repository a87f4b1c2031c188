from __future__ import annotations

import pytest

from qknorm.optimisation.schedules import SCHEDULES, factor_after, peak_of_paper

PAPER = 512**-0.5 * 8000**-0.5


@pytest.mark.parametrize(
    ("kind", "arguments", "rates"),
    [
        ("warmup-flat", {"peak": PAPER, "warmup": 8000}, {4000: PAPER / 2, 8000: PAPER, 100_000: PAPER}),
        ("vaswani", {"peak": PAPER, "warmup": 8000}, {1: 512**-0.5 * 8000**-1.5, 50_000: 512**-0.5 * 50_000**-0.5}),
        ("constant", {"peak": 3e-4}, {1: 3e-4, 10**6: 3e-4}),
        ("cosine", {"peak": 1e-3, "warmup": 100, "total": 5000}, {100: 1e-3, 2550: 0.55e-3, 5000: 1e-4, 9000: 1e-4}),
        (
            "trapezoid",
            {"peak": 1e-3, "warmup": 100, "total": 1000, "decay": 399},
            {50: 0.5e-3, 100: 1e-3, 601: 1e-3, 801: 0.5e-3, 1000: 1e-3 / 400},
        ),
    ],
)
def test_each_schedule_is_its_formula(kind: str, arguments: dict[str, float], rates: dict[int, float]) -> None:
    schedule = SCHEDULES[kind](**arguments)  # type: ignore[arg-type]
    assert peak_of_paper(512, 8000) == pytest.approx(PAPER)
    assert {step: schedule.rate(step) for step in rates} == pytest.approx(rates)


def test_before_its_decay_a_trapezoid_does_not_know_how_long_it_is() -> None:
    short, long = (SCHEDULES["trapezoid"](1e-3, 100, total, decay=300) for total in (1000, 5000))
    assert short.decay_start == 700
    assert all(short.rate(step) == long.rate(step) for step in range(1, 701))
    assert short.rate(701) < long.rate(701)


@pytest.mark.parametrize("kind", [kind for kind in SCHEDULES if SCHEDULES[kind].warms_up])
def test_a_warm_up_is_a_straight_line(kind: str) -> None:
    schedule = SCHEDULES[kind](1e-3, warmup=100, total=1000, decay=300)
    assert [schedule.rate(step) for step in (1, 50, 100)] == pytest.approx([1e-5, 0.5e-3, 1e-3])


@pytest.mark.parametrize(
    ("scores", "factor"),
    [
        ([10, 11, 12, 9], 0.8),
        ([10, 11, 12, 10], 1.0),  # not strictly below each
        ([12, 9], 1.0),  # fewer than three before it
        ([5, 20, 21, 22, 19], 0.8),
    ],
)
def test_the_rate_falls_when_a_score_is_below_each_of_the_three_before(scores: list[float], factor: float) -> None:
    assert factor_after(scores) == factor
