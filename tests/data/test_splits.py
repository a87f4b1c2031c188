from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.splits import split
from qknorm.errors import InputError

DIFFERENT = [f"The house number {i}." for i in range(300)]
FILE = Path("mine.en")


def sizes(sources: list[str], held_out: int = 2) -> list[int]:
    """How many pairs are in each set."""
    return list(np.bincount(split(sources, held_out, FILE)))


# Few words, so that sources are often the same, or the same but for spaces or the form of é.
odd = st.lists(st.sampled_from(["one", "two", "Two", "caf\u00e9", "cafe\u0301", " "]), max_size=3).map(" ".join)
texts = st.tuples(st.lists(odd, max_size=60), st.randoms(use_true_random=False)).map(
    lambda drawn: drawn[1].sample([*drawn[0], *DIFFERENT[:60]], len(drawn[0]) + 60)
)


@given(texts, st.sampled_from([1, 2]))
def test_a_source_is_in_one_set_of_a_tenth_and_always_in_the_same(sources: list[str], held_out: int) -> None:
    set_of = split(sources, held_out, FILE)
    apart = [
        {" ".join(unicodedata.normalize("NFC", sources[row]).split()) for row in np.flatnonzero(set_of == number)}
        for number in range(held_out + 1)
    ]
    assert sum(map(len, apart)) == len(set().union(*apart))
    wanted = len(sources) / 10
    assert all(wanted - 1 <= (set_of == number).sum() <= 2 * wanted + 1 for number in range(1, held_out + 1))
    np.testing.assert_array_equal(split(sources, held_out, FILE), set_of)


def test_sets_are_spread_over_the_whole_text() -> None:
    assert split(DIFFERENT, 2, FILE).tolist() == [1, 2, *[0] * 8] * 30


def test_of_a_long_text_about_500_pairs_are_split_off() -> None:
    assert sizes([f"The house number {i}." for i in range(7_000)]) == [6_000, 500, 500]


def test_all_translations_of_a_source_are_in_the_same_set_unless_they_would_fill_it() -> None:
    assert sizes([source for source in DIFFERENT[:60] for _ in range(10)]) == [480, 60, 60]
    set_of = split([*["OK"] * 100, *DIFFERENT], 2, FILE)
    assert not set_of[:100].any()
    assert np.bincount(set_of).tolist() == [340, 30, 30]


@pytest.mark.parametrize("times", [1, 2])
def test_a_text_that_is_too_short_is_named(times: int) -> None:
    with pytest.raises(InputError, match=r"mine\.en has 29 different sentences .*at least 30 are needed"):
        split(DIFFERENT[:29] * times, 2, FILE)
