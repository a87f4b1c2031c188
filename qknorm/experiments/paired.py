"""Differences that are paired by fold (by seed where there are no folds): intervals and tests."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from qknorm.evaluation.significance import holm
from qknorm.evaluation.wording import SIGNIFICANT
from qknorm.experiments.results import Repeat

_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval (Student's t); without an interval where there is one number only."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def __format__(self, spec: str) -> str:
        """The mean and its interval, each in this format."""
        mean = format(self.mean, spec)
        return mean if self.low is None or self.high is None else f"{mean} [{self.low:{spec}}, {self.high:{spec}}]"


@dataclass(frozen=True)
class Difference:
    """To the reference, paired by block. The corrected p-values are Holm's, over all comparisons of the same kind."""

    estimate: Estimate
    t_test: float
    wilcoxon: float
    t_test_corrected: float
    wilcoxon_corrected: float
    comparisons: int

    @property
    def wilcoxon_can_tell(self) -> bool:
        """Wilcoxon's test of n differences gives at least 2/2ⁿ, and the least of several is multiplied by Holm."""
        return self.comparisons * 2.0 ** (1 - self.estimate.count) < SIGNIFICANT

    @property
    def p_value(self) -> float:
        """Corrected; the larger of both tests, or that of the t test where Wilcoxon's cannot tell."""
        return max(self.t_test_corrected, self.wilcoxon_corrected if self.wilcoxon_can_tell else 0.0)

    @property
    def is_significant(self) -> bool:
        return self.p_value < SIGNIFICANT


def by_block(values: Iterable[tuple[Repeat, Any]]) -> list[Any]:
    """Numbers or curves of runs, averaged over the seeds of each fold: what may be taken for independent."""
    groups: dict[Repeat, list[Any]] = {}
    for repeat, value in values:
        groups.setdefault(repeat[:1], []).append(value)
    return [np.mean(group, axis=0) for group in groups.values()]


def estimate(values: Sequence[float]) -> Estimate:
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    half = float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Estimate(mean, mean - half, mean + half, count)


def paired(values: Mapping[Repeat, float], reference: Mapping[Repeat, float]) -> list[float]:
    """Seeds are matched before they are averaged: one that only one side has finished would bias its fold."""
    return by_block((repeat, values[repeat] - reference[repeat]) for repeat in values if repeat in reference)


def all_tested(by_name: Mapping[_Name, Sequence[float]]) -> dict[_Name, Difference]:
    """All that have two blocks or more, corrected for each other."""
    several = {name: differences for name, differences in by_name.items() if len(differences) >= 2}
    tests = {name: _tests(differences) for name, differences in several.items()}
    t_tests, wilcoxons = (holm([p_values[kind] for p_values in tests.values()]) for kind in (0, 1))
    return {
        name: Difference(estimate(several[name]), *tests[name], t_test, wilcoxon, len(tests))
        for name, t_test, wilcoxon in zip(tests, t_tests, wilcoxons, strict=True)
    }


def _tests(differences: Sequence[float]) -> tuple[float, float]:
    """p-values of the paired t test and of Wilcoxon's signed-rank test."""
    if not any(differences):
        return 1.0, 1.0
    if len(set(differences)) == 1:  # no spread at all: t is infinite
        return 0.0, float(stats.wilcoxon(differences).pvalue)
    return float(stats.ttest_1samp(differences, 0.0).pvalue), float(stats.wilcoxon(differences).pvalue)
