from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.importers import Pair
from qknorm.data.leaks import HeldOut

WORD = st.text("abcdefgh", min_size=1, max_size=3)
SENTENCE = st.lists(WORD, min_size=4, max_size=12).map(" ".join)


@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1), SENTENCE, st.booleans(), st.booleans())
def test_a_sentence_is_held_out_on_either_side_of_either_language(
    held: list[tuple[str, str]], other: str, takes_target: bool, turned: bool
) -> None:
    held_out, known = HeldOut(Pair(*pair) for pair in held), {side for pair in held for side in pair}
    pair = (held[0][takes_target].capitalize(), other)
    assert held_out.hold(Pair(*(pair[::-1] if turned else pair)))
    assert held_out.hold(Pair(other, other)) == (other in known)


@pytest.mark.parametrize(("line", "is_held"), [("thank you", False), ("不" * 20, True), ("Congratulations!", False)])
def test_short_sentences_stand_everywhere(line: str, is_held: bool) -> None:
    assert HeldOut([Pair(line, "x")]).hold(Pair(line, "y")) == is_held


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 9), max_size=12))
def test_six_words_in_a_row_are_a_near_copy(held: list[int], line: list[int]) -> None:
    windows = [{tuple(words[start : start + 6]) for start in range(len(words) - 5)} for words in (held, line)]
    sides = [" ".join(map(str, words)) for words in (held, line)]
    assert HeldOut([Pair("", sides[0])]).resemble(Pair(sides[1], "")) == bool(windows[0] & windows[1])
