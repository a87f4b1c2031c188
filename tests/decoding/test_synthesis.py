from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from qknorm.data.textfiles import read_lines
from qknorm.decoding.synthesis import synthesize
from qknorm.decoding.translator import Translation, Translator

LINE = "one two three four five six seven eight nine ten eleven"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("un dous tres catro cinco seis sete oito nove dez", None),
        ("", "empty"),
        ("un dous tres", "lengths too different"),
        (LINE, "a copy"),
        ("e o que e o que e o que non", "repeats itself"),
    ],
)
def test_nobody_should_learn_from_what_is_implausible(text: str, reason: str | None) -> None:
    translator = Mock(spec=Translator)
    translator.translations.return_value = iter([[Translation(LINE, text, 0.0, [])]])
    (made,) = synthesize(translator, [LINE])
    assert (made.line, made.translation.text, made.reason) == (LINE, text, reason)


def test_every_line_is_answered_in_order(trained_run: Path) -> None:
    translator = Translator.load(trained_run)
    lines = list(read_lines(trained_run / "test" / "source.txt"))[:20]
    made = list(synthesize(translator, lines))
    assert [one.line for one in made] == lines
    assert [one.translation.text for one in made] == translator.translate(lines)
