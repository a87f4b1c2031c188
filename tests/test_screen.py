from __future__ import annotations

import io

import pytest

from qknorm.screen import Screen, duration, escaped


@pytest.mark.parametrize("text", ["[/b]", "[red]x[/red]", ":smile:", "a [link=x]b", "1 + 1"])
def test_somebodys_text_is_not_markup(text: str) -> None:
    out = io.StringIO()
    Screen(file=out, width=60).print(text)
    assert out.getvalue() == f"{text}\n"


def test_terminal_commands_are_shown_and_do_nothing() -> None:
    out = io.StringIO()
    Screen(file=out, width=60, force_terminal=True).print("before\x1b[2Jafter\x9b1m")
    assert "\x1b[2J" not in out.getvalue()
    assert "before\\x1b[2Jafter\\x9b1m" in out.getvalue()
    assert escaped("tab\tline\n") == "tab\tline\n"


@pytest.mark.parametrize(("is_terminal", "lines"), [(True, 3), (False, 1)])
def test_words_stay_whole_in_a_terminal_and_lines_in_a_file(is_terminal: bool, lines: int) -> None:
    out = io.StringIO()
    Screen(file=out, width=20, force_terminal=is_terminal).print("several words that need more than a line here")
    assert len(out.getvalue().splitlines()) == lines
    assert " ".join(out.getvalue().split()) == "several words that need more than a line here"


def test_a_time_is_said_in_the_unit_that_fits() -> None:
    said = {
        0.2: "0 seconds",
        1: "1 second",
        118: "118 seconds",
        120: "2.0 minutes",
        1500: "25 minutes",
        9000: "2.5 hours",
    }
    assert {seconds: duration(seconds) for seconds in said} == said
