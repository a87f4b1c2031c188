from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.importers import Pair
from qknorm.data.shifts import Shift, Steps


def out_of_step(source: list[str], target: list[str]) -> list[Shift]:
    steps = Steps()
    assert list(steps.watch(map(Pair, source, target))) == list(map(Pair, source, target))
    return steps.shifts()


def sentences(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Sentences of many lengths, and translations whose lengths differ from theirs by a fifth or so."""
    draw = random.Random(seed)
    lengths = [draw.lognormvariate(4, 0.6) for _ in range(count)]
    return ["a" * round(length) for length in lengths], [
        "b" * round(length * draw.lognormvariate(0.1, 0.2)) for length in lengths
    ]


@given(seed=st.integers(0, 99), start=st.integers(100, 800), by=st.sampled_from([-3, -1, 1, 2]))
def test_lines_that_one_file_lacks_are_found(seed: int, start: int, by: int) -> None:
    source, target = sentences(1000, seed)
    more = target if by > 0 else source
    more[start:start] = ["x" * 40] * abs(by)
    (shift,) = out_of_step(source[:1000], target[:1000])
    assert shift.by == by
    assert abs(shift.first - 1 - start) <= 25


@given(seed=st.integers(0, 99))
def test_a_text_in_step_raises_no_alarm(seed: int) -> None:
    assert out_of_step(*sentences(600, seed)) == []


def test_what_cannot_be_told_is_not_told() -> None:
    """Words of one length, a few lines, and a text that is no translation at all."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abc", k=5)) for _ in range(300)]
    assert out_of_step(words, words[1:] + words[:1]) == []
    assert out_of_step(*(side[:30] for side in sentences(100, 1))) == []
    assert out_of_step([], []) == []
    assert all(out_of_step(sentences(600, seed)[0], sentences(600, seed + 1)[1]) == [] for seed in range(10))


def test_two_places_are_told_one_by_one() -> None:
    """A line is missing in one file, and further on one in the other."""
    source, target = sentences(1500, 3)
    del target[1000], source[500]
    first, *rest = out_of_step(source, target)
    assert (first.by, rest) == (1, [])
    assert first.first == pytest.approx(501, abs=25)
    assert first.last == pytest.approx(1000, abs=25)
    assert "the target has 1 line there that the source lacks" in str(first)


def test_digits_and_signs_tell_where_lengths_do_not() -> None:
    draw = random.Random(5)
    source = [f"{draw.randrange(10**4, 10**5)}" + draw.choice("?!.") for _ in range(400)]
    (shift,) = out_of_step(source, source[1:] + source[:1])
    assert (shift.first, shift.by) == (1, -1)
