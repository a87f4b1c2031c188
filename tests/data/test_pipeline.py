"""The text processing of a model: each step does its part, and takes it back."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data import pipeline
from qknorm.data.pipeline import TextPipeline, tidy
from qknorm.errors import InputError


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


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        (" \u00a0Ola\t", "Hello", " \u00a0Hello\t"),
        ("10\u00a0casas", "10 houses", "10\u00a0houses"),
        ("Que\u00a0é ?", "What is ?", "What is ?"),
        ("É\u202f?", "Is it ?", "Is it\u202f?"),
        ("San\u00a0Brais é", "It is San Brais", "It is San\u00a0Brais"),
        ("\u00a0", "", ""),
        (" x ", "", ""),
    ],
)
def test_white_space_around_a_line_comes_back_and_no_break_spaces_where_their_words_are(
    line: str, translation: str, expected: str
) -> None:
    pipeline = TextPipeline(["tidy"])
    assert pipeline.after(translation, pipeline.before(line)[1]) == expected


class Numbered:
    """A step that puts a sign for the first character of a line."""

    def __init__(self, sign: str) -> None:
        self.sign = sign

    def before(self, line: str) -> tuple[str, str]:
        return self.sign + line[1:], line[0]

    def after(self, line: str, mark: str) -> str:
        return line.replace(self.sign, mark)


def test_steps_follow_each_other_and_are_taken_back_in_the_other_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "STEPS", {**pipeline.STEPS, "one": Numbered("1"), "two": Numbered("2")})
    steps = TextPipeline(["tidy", "one", "two"])
    line, marks = steps.before("  a\u00a0b ")
    assert line == "2 b"
    assert steps.after("c 2", marks) == "  c a "


@given(st.text())
def test_without_steps_a_line_stays_as_it_is(line: str) -> None:
    assert TextPipeline().after(*TextPipeline().before(line)) == line


def test_a_step_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match="no step of text is called 'tidi'; there are: tidy"):
        TextPipeline(["tidi"])
