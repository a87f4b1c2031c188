"""Signs go back to where they belong."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.placeholders import SIGN
from qknorm.data.subwords import SIGNS
from qknorm.decoding.repair import repaired

A, B, C = SIGNS[0], SIGNS[1], SIGNS[2]


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        (f"Open {A} now", f"Abrir {A} agora", [], f"Abrir {A} agora"),
        (f"Open {A} now", "Abrir agora", [(0, 0), (2, 1)], f"Abrir {A} agora"),
        (f"Open {A}.", "Abrir.", [(0, 0)], f"Abrir {A}."),
        (f"{A} files", "ficheiros", [(1, 0)], f"{A} ficheiros"),
        (f"the {A}red{B} house", "a casa vermella", [(0, 0), (1, 2), (2, 1)], f"a casa {A}vermella{B}"),
        (f"the {A}{C}red{B} house.", f"a vermella{B} casa.", [(0, 0), (1, 1), (2, 2)], f"a {A}{C}vermella{B} casa."),
        (f"Open {A} and {B}", f"{B}{B} {C} abre {A}", [], f"{A} abre {B}"),
        (f"one {A} two", "un dous", [], f"un {A} dous"),
        (f"{A}", "", [], A),
        (f"see {A} now", f"mira{A}agora", [], f"mira {A} agora"),
    ],
)
def test_a_sign_is_put_beside_the_words_that_translate_its_neighbours(
    source: str, target: str, links: list[tuple[int, int]], expected: str
) -> None:
    assert repaired(source, target, links, lambda _: True) == expected


pieces = st.lists(st.sampled_from([A, B, C, "a", "be", " ", "."]), max_size=15).map(
    lambda parts: " ".join("".join(parts).split())
)
links = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5)


@given(pieces, pieces, links)
def test_all_signs_are_there_in_order_whatever_was_said(source: str, target: str, links: list[tuple[int, int]]) -> None:
    made = repaired(source, target, links, lambda sign: sign != C)
    assert Counter(SIGN.findall(made)) == Counter(SIGN.findall(source))
    assert [sign for sign in made if sign in (A, B)] == [sign for sign in source if sign in (A, B)]
    assert SIGN.sub("", made).replace(" ", "") == SIGN.sub("", target).replace(" ", ""), "and no word is lost"
