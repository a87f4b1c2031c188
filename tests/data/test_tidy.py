from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.tidy import tidy


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Que\u00a0é\u202fisto ?", "Que é isto ?"),
        ("  a \t b\u3000c\u2028d  ", "a b c d"),
        (unicodedata.normalize("NFD", "Ação"), "Ação"),
        ("a\u200db", "a\u200db"),  # a joiner of letters is no space
        ("\u00a0", ""),
    ],
)
def test_what_nobody_sees_is_written_in_one_way(line: str, expected: str) -> None:
    assert tidy(line) == expected


@given(st.text())
def test_tidy_text_stays_as_it_is(line: str) -> None:
    assert tidy(tidy(line)) == tidy(line)
    assert "".join(tidy(line).split()) == "".join(unicodedata.normalize("NFC", line).split())
