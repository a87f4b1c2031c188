"""Whether p matters: intervals, tests paired by fold (by seed where there are no folds), and the answer in plain words.

Everything is done for each start of α by itself: with one α for all p, a larger p begins with sharper attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from qknorm.evaluation.significance import holm
from qknorm.experiments.sweep.results import Repeat, RunResult, block_of, unit_of

REFERENCE = "p = 2"  # the label of what everything is compared with
_LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval (Student's t); without an interval where there is one number only."""

    mean: float
    low: float | None
    high: float | None
    count: int


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
        return self.comparisons * 2.0 ** (1 - self.estimate.count) < _LEVEL

    @property
    def p_value(self) -> float:
        """Corrected; the larger of both tests, or that of the t test where Wilcoxon's cannot tell."""
        return max(self.t_test_corrected, self.wilcoxon_corrected if self.wilcoxon_can_tell else 0.0)

    @property
    def is_significant(self) -> bool:
        return self.p_value < _LEVEL

    def as_dict(self) -> dict[str, Any]:
        judged = "both" if self.wilcoxon_can_tell else "t_test"
        return asdict(self) | {"judged_by": judged, "significant": self.is_significant}


@dataclass(frozen=True)
class Arm:
    """All runs of one p under one start."""

    start: str
    label: str
    p: float | None
    """None for what stands beside every start, such as no normalisation."""
    measures: dict[str, Estimate]
    differences: dict[str, Difference]
    """To p = 2 under the same start; empty for p = 2 itself, and where fewer than two blocks can be compared."""
    time_ratio: float | None
    """The median over runs of the training time relative to p = 2."""


@dataclass(frozen=True)
class SharpPair:
    """p = q and another p that was started as sharp: whatever differs is the norm itself, and not a larger g."""

    q: float
    other: float
    differences: dict[str, Difference]
    """Of q, under the start that is the same for all p, to the other."""


@dataclass(frozen=True)
class Statistics:
    """The answer of a sweep."""

    arms: list[Arm]
    target_loss: float
    """The loss that `iterations_to_target` speaks of: one that every run has reached."""
    unit: str
    """What the numbers are counted in: fold, or seed where there are no folds."""
    started_as_sharp: list[SharpPair] = field(default_factory=list)

    def of(self, start: str) -> list[Arm]:
        return [arm for arm in self.arms if arm.start == start]

    @property
    def starts(self) -> list[str]:
        return list(dict.fromkeys(arm.start for arm in self.arms))

    def as_dict(self) -> dict[str, Any]:
        return {
            "target_loss": self.target_loss,
            "unit": self.unit,
            "arms": [_as_dict(arm) for arm in self.arms],
            "started_as_sharp": [_as_dict(pair) for pair in self.started_as_sharp],
        }


def _as_dict(part: Arm | SharpPair) -> dict[str, Any]:
    return asdict(part) | {"differences": {name: one.as_dict() for name, one in part.differences.items()}}


MEASURES = ("best_val_loss", "final_val_loss", "area", "iterations_to_target")
_Values = dict[Repeat, float]
_Measure = Callable[[RunResult], float]
_Name = TypeVar("_Name", bound=Hashable)


def analyse(results: Sequence[RunResult]) -> Statistics | None:
    """Statistics of the runs that are done; None where nothing varies in p."""
    done = [result for result in results if result.status == "done"]
    normalised = [result for result in done if not result.is_beside and result.p is not None]
    if not normalised:
        return None
    target = math.ceil(100 * max(min(result.val_losses) for result in done)) / 100
    beside = [result for result in done if result.is_beside]
    arms: list[Arm] = []
    for start in dict.fromkeys(result.start for result in normalised):
        groups: dict[str, list[RunResult]] = {}
        for result in [*(one for one in normalised if one.start == start), *beside]:
            groups.setdefault(result.label, []).append(result)
        arms += _arms(start, groups, target)
    return Statistics(arms, target, unit_of(done), _sharp_pairs(done, target))


def _sharp_pairs(done: Sequence[RunResult], target: float) -> list[SharpPair]:
    """Every p = q under the same start beside those p that were to start as sharp as q."""
    larger: dict[float, list[RunResult]] = {}
    sharp: dict[tuple[float, float], list[RunResult]] = {}
    for run in done:
        if run.p is None or run.further:
            continue
        if run.start == "same":
            larger.setdefault(run.p, []).append(run)
        elif run.sharp_as not in (None, run.p):
            sharp.setdefault((run.sharp_as, run.p), []).append(run)
    tested = {
        name: _all_tested({
            (q, p): _paired(_values(larger.get(q, []), measure), _values(runs, measure))
            for (q, p), runs in sharp.items()
        })
        for name, measure in _measures(target).items()
    }  # fmt: skip
    compared = tested["best_val_loss"]
    return [SharpPair(q, p, {name: tested[name][q, p] for name in MEASURES}) for q, p in compared]


def _values(runs: Sequence[RunResult], measure: _Measure) -> _Values:
    return {run.repeat: measure(run) for run in runs}


def _measures(target: float) -> dict[str, _Measure]:
    return {
        "best_val_loss": lambda run: run.measured["best_val_loss"],
        "final_val_loss": lambda run: run.measured["final_val_loss"],
        "area": area_under_curve,
        "iterations_to_target": lambda run: iterations_to(target, run),
    }


def _arms(start: str, groups: Mapping[str, Sequence[RunResult]], target: float) -> list[Arm]:
    values = {
        name: {label: _values(runs, measure) for label, runs in groups.items()}
        for name, measure in _measures(target).items()
    }
    differences = {name: _differences(by_label) for name, by_label in values.items()}
    seconds = {label: {run.repeat: run.measured["seconds"] for run in runs} for label, runs in groups.items()}
    return [
        Arm(
            start,
            label,
            None if runs[0].is_beside else runs[0].p,
            {name: estimate(by_block(values[name][label].items())) for name in values},
            {name: of_label[label] for name, of_label in differences.items() if label in of_label},
            _median_ratio(seconds[label], seconds.get(REFERENCE, {})),
        )
        for label, runs in groups.items()
    ]


def by_block(values: Iterable[tuple[Repeat, Any]]) -> list[Any]:
    """Numbers or curves of runs, averaged over the seeds of each fold: what may be taken for independent."""
    groups: dict[Repeat, list[Any]] = {}
    for repeat, value in values:
        groups.setdefault(block_of(repeat), []).append(value)
    return [np.mean(own, axis=0) for own in groups.values()]


def estimate(values: Sequence[float]) -> Estimate:
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    half = float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Estimate(mean, mean - half, mean + half, count)


def area_under_curve(run: RunResult) -> float:
    """The mean height of the curve of validation losses: a run that converges faster has less."""
    if len(run.steps) < 2:
        return run.val_losses[0]
    return float(np.trapezoid(run.val_losses, run.steps)) / (run.steps[-1] - run.steps[0])


def iterations_to(target: float, run: RunResult) -> float:
    """Where the curve first comes down to the target, interpolated between validations; infinite if it never does."""
    before: tuple[int, float] | None = None
    for step, loss in zip(run.steps, run.val_losses, strict=True):
        if loss <= target:
            if before is None:
                return float(step)
            return before[0] + (step - before[0]) * (before[1] - target) / (before[1] - loss)
        before = (step, loss)
    return math.inf


def _differences(by_label: Mapping[str, _Values]) -> dict[str, Difference]:
    reference = by_label.get(REFERENCE, {})
    return _all_tested({label: _paired(own, reference) for label, own in by_label.items() if label != REFERENCE})


def _paired(values: _Values, reference: _Values) -> list[float]:
    """Seeds are matched before they are averaged: one that only one side has finished would bias its fold."""
    return by_block((repeat, values[repeat] - reference[repeat]) for repeat in values if repeat in reference)


def _all_tested(by_name: Mapping[_Name, Sequence[float]]) -> dict[_Name, Difference]:
    """All that have two blocks or more, corrected for each other."""
    paired = {name: differences for name, differences in by_name.items() if len(differences) >= 2}
    tests = {label: _tests(differences) for label, differences in paired.items()}
    t_tests, wilcoxons = (holm([p_values[kind] for p_values in tests.values()]) for kind in (0, 1))
    return {
        label: Difference(estimate(paired[label]), *tests[label], t_test, wilcoxon, len(tests))
        for label, t_test, wilcoxon in zip(tests, t_tests, wilcoxons, strict=True)
    }


def _tests(differences: Sequence[float]) -> tuple[float, float]:
    """p-values of the paired t test and of Wilcoxon's signed-rank test."""
    if not any(differences):
        return 1.0, 1.0
    if len(set(differences)) == 1:  # no spread at all: t is infinite
        return 0.0, float(stats.wilcoxon(differences).pvalue)
    return float(stats.ttest_1samp(differences, 0.0).pvalue), float(stats.wilcoxon(differences).pvalue)


def _median_ratio(values: _Values, reference: _Values) -> float | None:
    ratios = [values[repeat] / reference[repeat] for repeat in values if reference.get(repeat)]
    return float(np.median(ratios)) if ratios else None
