"""How numbers are said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qknorm.evaluation import wording
from qknorm.evaluation.significance import Comparison


@pytest.mark.parametrize(
    ("value", "is_bound", "expected"),
    [
        (None, False, ""),
        (0.0474, False, "0.047"),
        (0.0004, False, "0.0004"),
        (1 / 1001, True, "≤ 0.001"),
        (1 / 10_001, True, "≤ 0.0001"),
    ],
)
def test_a_p_value_says_no_more_than_is_known(value: float | None, is_bound: bool, expected: str) -> None:
    assert wording.p_value(value, is_bound) == expected


def row(difference: float, p_value: float, is_bound: bool = False) -> Comparison:
    return Comparison(
        "ours", 20.0, 19.0, 21.0, p_value, is_bound, 1, None, difference, difference - 1.0, difference + 1.0
    )


def test_a_difference_is_called_chance_or_not() -> None:
    assert wording.verdict(row(0.5, 0.05), "base") == (
        "ours and base cannot be told apart: the difference of +0.50 BLEU may be chance "
        "(95 % interval -0.50 to +1.50, p = 0.050)."
    )
    assert wording.verdict(row(-1.5, 1 / 1001, is_bound=True), "base") == (
        "ours is worse than base by 1.50 BLEU, which is more than chance (95 % interval -2.50 to -0.50, p ≤ 0.001)."
    )


def test_what_is_not_known_about_seeds_is_said() -> None:
    first, other = replace(row(0.5, 0.05), difference=None, p_value=None), row(0.5, 0.05)
    assert wording.verdicts([first, other])[1].startswith("Each was trained once")
    assert wording.verdicts([replace(row, first_seeds_only=True) for row in (first, other)])[1] == wording.FIRST_SEEDS
    assert len(wording.verdicts([replace(row, seeds=2) for row in (first, other)])) == 1
    assert "not of models trained with another seed" in wording.about_interval(seeds=1)
    assert "other seeds" in wording.about_interval(seeds=3)


def test_how_a_p_value_came_about_is_said() -> None:
    assert "(paired bootstrap). “≤” stands" in wording.about_p(1)
    assert "(Student's t of the seeds, as in the interval, corrected by Holm's" in wording.about_p(2, seeds=3)
