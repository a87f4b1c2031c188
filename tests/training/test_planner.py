"""The plan is a pure function: every sentence it says about minutes, passes and sizes is checked here with numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.runs.recipe import Recipe, merged
from qknorm.training import planner
from qknorm.training.planner import SHAPES, TextSize

TALKS = TextSize(positions=350_000, dev=20_000, test=30_000)
SPEED = (0.2, 900.0)  # seconds and positions of an update

sizes = st.integers(1_000, 10_000_000)
speeds = st.tuples(st.floats(0.001, 30), st.floats(16, 4096))


@given(sizes, st.floats(30, 100_000), speeds)
def test_a_plan_ends_in_time(positions: int, seconds: float, speed: tuple[float, float]) -> None:
    """But for a machine on which not even one update before each validation fits."""
    plan = planner.length_for(TextSize(positions, positions // 20, positions // 20), seconds, *speed)
    if plan.updates > plan.validations:
        assert plan.seconds <= seconds * 1.0001
    assert plan.passes == pytest.approx(plan.updates * speed[1] / positions)


@given(sizes, st.floats(30, 100_000), speeds)
def test_more_time_never_gives_fewer_passes(positions: int, seconds: float, speed: tuple[float, float]) -> None:
    text = TextSize(positions, positions // 20, positions // 20)
    short, long = (planner.length_for(text, time, *speed) for time in (seconds, 2 * seconds))
    slack = long.validations  # updates are rounded down to a multiple of them
    assert short.updates <= long.updates + slack


@given(sizes, st.floats(-1000, 1), speeds)
def test_no_time_is_never_less_than_none(positions: int, seconds: float, speed: tuple[float, float]) -> None:
    plan = planner.length_for(TextSize(positions, positions // 20, positions // 20), seconds, *speed)
    assert plan.updates >= plan.validations
    assert plan.seconds > 0


def test_talks_of_eleven_thousand_pairs_are_read_often_enough() -> None:
    """The plan this replaces gave them four passes, whatever the time."""
    ten, sixty = (planner.length_for(TALKS, 60 * minutes, *SPEED) for minutes in (10, 60))
    assert 5 < ten.passes < 8
    assert 35 < sixty.passes < 47
    assert not sixty.is_limited_by_text


def test_a_small_text_is_not_read_for_ever() -> None:
    plan = planner.length_for(TextSize(16_000, 1_600, 1_600), 3600, *SPEED)
    assert plan.is_limited_by_text
    assert plan.seconds < 3600 / 2
    assert plan.passes == pytest.approx(planner.MOST_PASSES, rel=0.1)


@given(st.floats(0.01, 1000), st.integers(16, 1024))
def test_more_passes_and_wider_models_never_drop_less(passes: float, dim: int) -> None:
    dropped = planner.dropout_for(passes, dim)
    assert 0.1 <= dropped <= planner.dropout_for(2 * passes, dim) <= 0.35
    assert dropped <= planner.dropout_for(passes, 2 * dim)


def test_somebody_who_decides_on_the_updates_gets_them() -> None:
    assert planner.length_for(TALKS, 600, *SPEED, updates=123).updates == 123


@given(st.floats(1e6, 1e18), st.integers(100, 32_000), sizes)
def test_more_time_or_text_never_give_a_smaller_model(operations: float, vocabulary: int, positions: int) -> None:
    few, many, much = (
        planner.shape_for(share * operations, vocabulary, text * positions) for share, text in ((1, 1), (3, 1), (1, 3))
    )
    assert few in SHAPES
    assert few.weights <= many.weights
    assert few.weights <= much.weights


def test_ten_minutes_and_ten_hours_of_two_cores_want_different_models() -> None:
    assert planner.shape_for(10 * 60 * 2.8e11, 3000, TALKS.positions).dim == 256
    assert planner.shape_for(10 * 3600 * 2.8e11, 3000, TALKS.positions).dim > 256


def test_time_that_a_small_text_cannot_use_buys_no_large_model() -> None:
    assert planner.shape_for(3600 * 2.8e11, 2000, 240 * 20).dim == 128


def test_wider_models_learn_more_slowly() -> None:
    assert planner.peak_for(256) == 1.5e-3
    assert planner.peak_for(64) == 3e-3
    assert planner.peak_for(1024) == 0.75e-3


def test_muon_has_larger_batches_and_wider_models_too() -> None:
    assert [planner.budget_for(256, optimizer) for optimizer in ("adam", "adamw", "muon")] == [1024, 1024, 2048]
    assert planner.budget_for(512, "muon") == 4096


@pytest.mark.parametrize(("words", "merges"), [(1_000, 2_000), (430_000, 3_000), (6_000_000, 8_000)])
def test_merges_grow_with_the_text(words: int, merges: int) -> None:
    assert planner.merges_for(words) == merges


@given(st.integers(1, 10**6))
def test_every_plan_is_a_recipe(updates: int) -> None:
    plan = planner.length_for(TALKS, 600, *SPEED, updates=updates)
    training = _recipe(planner.START, planner.settings(plan, 256)).training
    assert training.max_updates == updates
    assert training.decay is not None
    assert training.warmup <= max(updates - training.decay, 1)


@given(st.floats(100, 10**5), st.floats(100, 10**5))
def test_decays_and_ends_come_with_a_validation(first: float, second: float) -> None:
    plan, more = (planner.length_for(TALKS, seconds, *SPEED) for seconds in (first, second))
    settings = planner.settings(plan, 256)
    training = _recipe(planner.START, settings).training
    every = training.validate_every
    assert plan.updates == every * plan.validations
    begun = plan.updates - settings["training"]["decay"]
    assert begun % every == 0
    assert begun / plan.updates == pytest.approx(0.5, abs=0.15)
    longer = planner.prolonged(begun, more, 200)
    every = longer["validate_every"]
    assert longer["max_updates"] % every == 0
    assert longer["max_updates"] > begun
    fell = longer["max_updates"] - longer["decay"]
    assert fell == begun or (fell > begun and (fell % every == 0 or longer["decay"] == 1))


@given(st.integers(1, 5000), st.floats(60, 10**6), st.integers(1, 1000))
def test_a_prolonged_run_validates_and_waits_as_a_new_plan_does(done: int, seconds: float, most: int) -> None:
    """A try of thirty updates, prolonged by a minute, used to end after six validations of eight updates."""
    more = planner.length_for(TALKS, seconds, *SPEED)
    fresh, longer = planner.settings(more, 256)["training"], planner.prolonged(done, more, most)
    assert longer["validate_every"] == fresh["validate_every"]
    assert longer["max_validations"] >= max(longer["max_updates"] // longer["validate_every"], most)
    assert abs(longer["max_updates"] - done - more.updates) < 2 * longer["validate_every"]


def _recipe(*contents: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(merged({"data": {"corpus": "multi30k-en-de"}}, *contents))
