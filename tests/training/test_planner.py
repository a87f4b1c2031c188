"""The plan is a pure function: every sentence it says about minutes, passes and sizes is checked here with numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.runs.recipe import Recipe, merged
from qknorm.training import planner
from qknorm.training.planner import SHAPES, TextSize
from qknorm.training.prolonged import prolonged_recipe

TALKS = TextSize(positions=350_000, dev=20_000, test=30_000)
SPEED = (0.2, 900.0)  # seconds and positions of an update

sizes = st.integers(1_000, 10_000_000)
speeds = st.tuples(st.floats(0.001, 30), st.floats(16, 4096))


@given(sizes, st.floats(-1000, 100_000), speeds)
def test_a_plan_ends_in_time(positions: int, seconds: float, speed: tuple[float, float]) -> None:
    """But for a machine on which not even one update before each validation fits; no time is never less than none."""
    plan = planner.length_for(TextSize(positions, positions // 20, positions // 20), seconds, *speed)
    assert plan.updates >= plan.validations
    assert plan.seconds > 0
    if plan.updates > plan.validations:
        assert plan.seconds <= seconds * 1.0001
    assert plan.passes == pytest.approx(plan.updates * speed[1] / positions)


@given(sizes, st.floats(30, 100_000), speeds)
def test_more_time_never_gives_fewer_passes(positions: int, seconds: float, speed: tuple[float, float]) -> None:
    text = TextSize(positions, positions // 20, positions // 20)
    short, long = (planner.length_for(text, time, *speed) for time in (seconds, 2 * seconds))
    slack = long.validations  # updates are rounded down to a multiple of them
    assert short.updates <= long.updates + slack


def test_passes_grow_with_the_minutes_up_to_what_a_text_is_good_for() -> None:
    ten, sixty = (planner.length_for(TALKS, 60 * minutes, *SPEED) for minutes in (10, 60))
    assert 5 < ten.passes < 8
    assert 35 < sixty.passes < 47
    assert not sixty.is_limited_by_text
    small = planner.length_for(TextSize(16_000, 1_600, 1_600), 3600, *SPEED)
    assert small.is_limited_by_text
    assert small.seconds < 3600 / 2
    assert small.passes == pytest.approx(planner.MOST_PASSES, rel=0.1)


@given(st.floats(0.01, 1000), st.integers(16, 1024))
def test_more_passes_and_wider_models_never_drop_less(passes: float, dim: int) -> None:
    dropped = planner.dropout_for(passes, dim)
    assert 0.1 <= dropped <= planner.dropout_for(2 * passes, dim) <= 0.35
    assert dropped <= planner.dropout_for(passes, 2 * dim)


@given(st.floats(1e6, 1e18), st.integers(100, 32_000), sizes)
def test_more_time_or_text_never_give_a_smaller_model(operations: float, vocabulary: int, positions: int) -> None:
    few, many, much = (
        planner.shape_for(share * operations, vocabulary, text * positions) for share, text in ((1, 1), (3, 1), (1, 3))
    )
    assert few in SHAPES
    assert few.weights <= many.weights
    assert few.weights <= much.weights


def test_sizes_go_with_time_and_text() -> None:
    """Time that a small text cannot use buys no large model; wider ones learn more slowly, in larger batches."""
    ten_minutes, ten_hours = (planner.shape_for(seconds * 2.8e11, 3000, TALKS.positions) for seconds in (600, 36_000))
    assert ten_minutes.dim == 256 < ten_hours.dim
    assert planner.shape_for(3600 * 2.8e11, 2000, 240 * 20).dim == 128
    assert [planner.peak_for(dim) for dim in (64, 256, 1024)] == [3e-3, 1.5e-3, 0.75e-3]
    assert [planner.budget_for(256, optimizer) for optimizer in ("adam", "adamw", "muon")] == [1024, 1024, 2048]
    assert planner.budget_for(512, "muon") == 4096
    assert [planner.merges_for(words) for words in (1_000, 430_000, 6_000_000)] == [2_000, 3_000, 8_000]


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


def test_a_run_that_grows_has_a_flat_rate_for_half_of_what_is_to_come() -> None:
    """The updates of the smaller model are many and fast: counted, they would leave the larger one a decay alone."""
    more = planner.length_for(TALKS, 3600, *SPEED)
    longer = planner.prolonged(2 * more.updates, more, 200, grows=True)
    assert longer["decay"] / (longer["max_updates"] - 2 * more.updates) == pytest.approx(0.5, abs=0.05)
    assert planner.prolonged(2 * more.updates, more, 200)["decay"] > 1.8 * longer["decay"]


def test_a_size_grows_by_heads_of_the_same_width() -> None:
    """256 is not a multiple of the 48 of four heads in 192; hidden units and layers grow all the same."""
    assert SHAPES[0].grown(SHAPES[2]) == planner.Shape(256, 512, 3, 2, 8)
    assert SHAPES[1].grown(SHAPES[3]) == planner.Shape(192, 1024, 3, 3, 4)
    assert SHAPES[1].grown(SHAPES[4]) == planner.Shape(384, 1536, 4, 4, 8)
    assert SHAPES[4].grown(SHAPES[1]) == SHAPES[4]


def test_dropout_of_a_prolonged_run_is_that_of_all_its_passes_unless_somebody_chose_it() -> None:
    short, more = (planner.length_for(TALKS, minutes * 60, *SPEED) for minutes in (10, 60))
    planned = _recipe(planner.START, planner.settings(short, 256))
    longer = prolonged_recipe(planned, short.updates // 2, more)
    passes = longer.training.total_updates * more.passes / more.updates
    assert longer.model.dropout == planner.dropout_for(passes, 256) > planned.model.dropout
    again = prolonged_recipe(longer, longer.training.total_updates // 2, more)
    assert again.model.dropout > longer.model.dropout
    chosen = _recipe(planned.model_dump(), {"model": {"relu_dropout": 0.4}})
    assert prolonged_recipe(chosen, short.updates // 2, more).model == chosen.model


def _recipe(*contents: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(merged({"data": {"corpus": "multi30k-en-de"}}, *contents))
