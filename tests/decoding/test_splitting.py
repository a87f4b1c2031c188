from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.decoding.splitting import join_parts, split_line


def split(line: str, most: int = 20) -> tuple[list[str], bool]:
    """By characters, where a translator counts pieces."""
    return split_line(line, lambda text: len(text) <= most)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("It is late. Are you there? Yes!", ["It is late.", "Are you there?", "Yes!"]),
        ("Pi is 3.14. See example.org.", ["Pi is 3.14.", "See example.org."]),
        ('He said "no." And left.', ['He said "no."', "And left."]),
        ("Fruit, e.g. apples. OK.", ["Fruit, e.g. apples.", "OK."]),
        ("下雨了。你在吗？在！", ["下雨了。", "你在吗？", "在！"]),
        ("Chove . Estás aí ?", ["Chove .", "Estás aí ?"]),
        ("هل أنت هنا؟ نعم.", ["هل أنت هنا؟", "نعم."]),
        ("မိုးရွာသည်။ ဟုတ်ကဲ့။", ["မိုးရွာသည်။", "ဟုတ်ကဲ့။"]),
        ("ភ្លៀងហើយ។ បាទអរគុណ។", ["ភ្លៀងហើយ។", "បាទអរគុណ។"]),
        ("ዝናብ እየዘነበ ነው። አዎ እሺ።", ["ዝናብ እየዘነበ ነው።", "አዎ እሺ።"]),
    ],
)
def test_lines_are_split_at_sentence_ends(line: str, parts: list[str]) -> None:
    assert split(line) == (parts, True)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("one two three, four five six seven", ["one two three,", "four five six seven"]),
        ("one two three four five six", ["one two three", "four five six"]),
        ("a" * 50, ["a" * 12, "a" * 13, "a" * 12, "a" * 13]),
        ("一二三四五六七八九十，一二三四五六七八九十一", ["一二三四五六七八九十，", "一二三四五六七八九十一"]),
    ],
)
def test_a_long_sentence_is_cut_where_it_hurts_least(line: str, parts: list[str]) -> None:
    assert split(line) == (parts, False)


@given(st.text(alphabet="ab .,!?。，\u3000é", max_size=200).filter(str.strip), st.integers(1, 30))
def test_nothing_is_lost_and_everything_fits(line: str, most: int) -> None:
    parts, _ = split(line, most)
    assert "".join("".join(parts).split()) == "".join(line.split())
    assert all(0 < len(part) <= most for part in parts)


def test_parts_are_joined_as_their_script_does() -> None:
    assert join_parts(["It rains.", "", "Yes."]) == "It rains. Yes."
    assert join_parts(["下雨了。", "在！"]) == "下雨了。在！"
    assert join_parts([""]) == ""
