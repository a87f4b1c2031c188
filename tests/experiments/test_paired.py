from __future__ import annotations

import math

import pytest

from qknorm.experiments.paired import Difference, Estimate, estimate, paired
from qknorm.experiments.results import Repeat


def test_the_interval_is_students() -> None:
    result = estimate([1.0, 2.0, 3.0])
    assert result.mean == pytest.approx(2.0)
    assert result.high is not None
    assert result.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-5)
    assert estimate([1.0]).low is None


def repeat(fold: int, seed: int) -> Repeat:
    return (("fold", fold), ("seed", seed))


def test_only_seeds_that_both_have_finished_are_compared() -> None:
    ours: dict[Repeat, float] = {repeat(0, 1): 2.0, repeat(0, 2): 9.0, repeat(1, 1): 3.0}
    theirs: dict[Repeat, float] = {repeat(0, 1): 1.0, repeat(1, 1): 5.0, repeat(2, 1): 7.0}
    assert paired(ours, theirs) == [1.0, -2.0]


@pytest.mark.parametrize(
    ("folds", "comparisons", "wilcoxon", "is_significant"),
    [
        (5, 1, 0.0625, True),  # Wilcoxon's test cannot give less
        (6, 1, 0.03125, True),
        (6, 1, 0.0625, False),
        (6, 2, 0.0625, True),  # after correction it cannot give less
        (10, 7, 0.1, False),
        (10, 7, 0.014, True),
    ],
)
def test_wilcoxon_has_a_say_where_it_can_tell(
    folds: int, comparisons: int, wilcoxon: float, is_significant: bool
) -> None:
    estimate = Estimate(-0.4, -0.41, -0.39, folds)
    for t_test, expected in ((0.01, is_significant), (0.06, False)):
        difference = Difference(estimate, t_test, wilcoxon, t_test, wilcoxon, comparisons)
        assert difference.is_significant == expected
