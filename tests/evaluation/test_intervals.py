"""Intervals of few seeds: exact where the exact answer is known, and right as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from qknorm.evaluation.intervals import Floats, measured

SENTENCES, SAMPLES, STUDIES = 100, 200, 2000


def repeated(scores: Floats) -> Floats:
    """Scores (samples, seeds) that are the same whatever the sentences are."""
    return np.tile(scores, (50, 1))


@pytest.mark.parametrize("seeds", [(2, 2), (3, 5), (4, 4)])
def test_where_sentences_make_no_difference_it_is_students_and_welchs(seeds: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(20, 0.5, seeds[0]), rng.normal(21, 1.5, seeds[1])
    welch = stats.ttest_ind(second, first, equal_var=False)
    student = stats.ttest_1samp(second, 20.0)
    actual = measured([second, -first], [repeated(second), -repeated(first)], SENTENCES)
    assert actual[:4] == pytest.approx((second.mean() - first.mean(), *welch.confidence_interval(), welch.pvalue))
    alone = measured([second - 20.0], [repeated(second)], SENTENCES)
    assert alone[1:4] == pytest.approx((*(end - 20.0 for end in student.confidence_interval()), student.pvalue))


def test_where_seeds_make_no_difference_it_is_the_bootstraps_standard_error() -> None:
    score, samples = np.array([1.0, 1.0]), np.random.default_rng(0).normal(20, 0.5, (1000, 1))
    actual = measured([score], [np.hstack([samples, samples])], SENTENCES)
    half = samples.std() * stats.t.ppf(0.975, SENTENCES - 1)
    assert actual[:3] == pytest.approx((1.0, 1.0 - half, 1.0 + half))
    assert actual.p_value == pytest.approx(2 * stats.t.sf(1 / samples.std(), SENTENCES - 1))


def test_where_nothing_varies_nothing_is_known() -> None:
    for difference in (0.0, 3.0):
        scores = [np.full(2, 20.0 + difference), np.full(2, -20.0)]
        assert measured(scores, list(map(repeated, scores)), 1) == (difference, difference, difference, 1.0, False)


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_95_of_100_studies_hold_the_truth(seeds: int) -> None:
    """Studies of two systems, whose scores depend on seeds, on sentences and on which seed meets which sentence."""
    rng = np.random.default_rng(seeds)
    drawn = rng.multinomial(SENTENCES, np.full(SENTENCES, 1 / SENTENCES), size=SAMPLES) / SENTENCES
    truths, held = (20.0, 21.0), np.zeros(2)
    for _ in range(STUDIES):
        difficulty = rng.normal(0, 10, SENTENCES)
        lines = [
            truth
            + difficulty
            + rng.normal(0, 5, SENTENCES)  # what the system makes of a sentence
            + rng.normal(0, 0.5, (seeds, 1))
            + rng.normal(0, 8, (seeds, SENTENCES))
            for truth in truths
        ]
        scores, resampled = [runs.mean(1) for runs in lines], [drawn @ runs.T for runs in lines]
        alone = measured(scores[:1], resampled[:1], SENTENCES)
        between = measured([scores[1], -scores[0]], [resampled[1], -resampled[0]], SENTENCES)
        held += (alone.low <= truths[0] <= alone.high, between.low <= truths[1] - truths[0] <= between.high)
    assert held / STUDIES == pytest.approx(0.95, abs=0.015)
