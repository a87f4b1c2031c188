"""Where a mean score, or the difference of two, may lie: with other sentences and, where there are several, seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Measured(NamedTuple):
    """A number with its 95 % interval, and the p-value of its being zero."""

    value: float
    low: float
    high: float
    p_value: float
    p_is_bound: bool = False
    """No sample was as extreme: all that can be said is that p is at most this."""


def measured(scores: Sequence[Floats], resampled: Sequence[Floats], sentences: int) -> Measured:
    """The sum of the systems' mean scores, each (seeds,), known also on resampled sentences, each (samples, seeds).

    One seed each: the bootstrap's samples speak for themselves. Several: two things may be otherwise, sentences and
    seeds, so the variance is that of the sentences, which all seeds share, plus that of the mean over each system's
    seeds. Welch and Satterthwaite say by how many degrees of freedom such a sum is known; without the sentences' part,
    this is Welch's test of the seeds' scores.
    """
    value = float(sum(runs.mean() for runs in scores))
    if all(len(runs) == 1 for runs in scores):
        return _by_samples(value, np.sum(resampled, axis=0)[:, 0])
    parts = [(_of_sentences(resampled), sentences - 1)]
    parts += [(float(runs.var(ddof=1)) / len(runs), len(runs) - 1) for runs in scores]
    variance = sum(part for part, _ in parts)
    if not variance:  # nothing varied, so nothing is known about chance
        return Measured(value, value, value, p_value=1.0)
    freedom = variance**2 / sum(part**2 / freedom for part, freedom in parts if part)
    return _by_student(value, math.sqrt(variance), freedom)


def share(extreme: Flags) -> float:
    """The p-value: how often chance did as much, the observation itself counted as one of the cases."""
    return float((extreme.sum() + 1) / (len(extreme) + 1))


def _by_samples(value: float, samples: Floats) -> Measured:
    low, high = np.percentile(samples, [2.5, 97.5])
    extreme = np.abs(samples - value) >= abs(value)
    return Measured(value, float(low), float(high), share(extreme), p_is_bound=not extreme.any())


def _by_student(value: float, error: float, freedom: float) -> Measured:
    half = error * float(special.stdtrit(freedom, 0.975))  # scipy.stats would take a second to import
    return Measured(value, value - half, value + half, 2 * float(special.stdtr(freedom, -abs(value) / error)))


def _of_sentences(resampled: Sequence[Floats]) -> float:
    """What single runs make of other sentences is part of how seeds vary; it must not count twice."""
    total = np.sum([runs.mean(1) for runs in resampled], axis=0)
    return max(0.0, float(total.var()) - sum(map(_unshared, resampled)))


def _unshared(runs: Floats) -> float:
    """The part of the variance of the mean of (samples, seeds) that comes from each run for itself."""
    seeds = runs.shape[1]
    return float((runs - runs.mean(1, keepdims=True)).var(0).sum() / (seeds - 1) / seeds)
