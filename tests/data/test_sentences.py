from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qknorm.data.sentences import sentences


@pytest.mark.parametrize(
    "line",
    [
        "Dr. Watson met Mr. Holmes.",
        "It costs 3.14 at example.org, i.e. Not much.",
        "J. R. R. Tolkien wrote it.",
        "The U.S. Senate met.",
        "1. Introduction",
        "XIV. The end of it",
        "“No!” she said.",
        "Wait... what?",
    ],
)
def test_not_every_full_stop_ends_a_sentence(line: str) -> None:
    assert sentences(line) == [line]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("It ended in 1999. Then came peace.", ["It ended in 1999.", "Then came peace."]),
        ("« Non ! » Il partit.", ["« Non ! »", "Il partit."]),
        ("Sei que é. Depois veremos.", ["Sei que é.", "Depois veremos."]),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ('Wait ! " And go.', ['Wait ! "', "And go."]),
        ("  ", []),
    ],
)
def test_sentences_end_where_their_script_says(line: str, parts: list[str]) -> None:
    assert sentences(line) == parts


@example('. " A')
@given(st.text(alphabet='aB1 .,!?。\u3000é"', max_size=80))
def test_nothing_is_lost(line: str) -> None:
    assert "".join("".join(sentences(line)).split()) == "".join(line.split())
