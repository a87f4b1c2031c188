from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from qknorm.data.jsonfiles import Stored, WithMeasures
from qknorm.errors import InputError


class Inner(Stored):
    number: float


class Known(Stored):
    name: str
    parts: list[Inner] = Field([], alias="pieces")


class Scored(WithMeasures):
    lines: int
    measures: dict[str, float]


def test_a_file_is_read_as_it_was_written_and_keys_of_other_versions_are_passed_over(tmp_path: Path) -> None:
    known = Known(name="é", parts=[Inner(number=float("inf"))])
    known.write(tmp_path / "known.json")
    assert (tmp_path / "known.json").read_text() == '{"name": "é", "pieces": [{"number": Infinity}]}'
    assert Known.of_file(tmp_path / "known.json") == known
    assert Known.of_text('{"name": "x", "later": 1}', "here").as_text() == '{"name": "x"}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is damaged: Expecting property name"),
        ("[]", "is damaged: it has no keys"),
        ("{}", "is damaged: name: Field required"),
        (
            '{"name": "x", "pieces": [{"number": "y"}]}',
            r"is damaged: pieces\.0\.number: Input should be",
        ),
        ("[" * 100_000, "is damaged"),
    ],
    ids=("cut", "list", "key", "value", "deep"),
)
def test_a_damaged_file_is_one_sentence(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text(text)
    with pytest.raises(InputError, match=rf"known\.json {reason}"):
        Known.of_file(tmp_path / "known.json")


def test_measures_of_an_open_table_stand_among_the_other_keys() -> None:
    scored = Scored(lines=3, measures={"chrf++": 2.5})
    assert scored.content() == {"lines": 3, "chrf++": 2.5}
    assert Scored.of_text('{"lines": 3, "chrf++": 2.5, "later": "text", "is_later": true}', "here") == scored
