"""Whether p matters: intervals and paired tests of the losses, and how fast they fell.

Everything is done for each start of α by itself: with one α for all p, a larger p begins with sharper attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qknorm.experiments.paired import Difference, Estimate, all_tested, by_block, estimate, paired
from qknorm.experiments.results import Repeat, RunResult, unit_of

REFERENCE = "p = 2"  # the label of what everything is compared with
MEASURES = ("best_val_loss", "final_val_loss", "area", "iterations_to_target")
_Measure = Callable[[RunResult], float]


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

    @property
    def can_tell(self) -> bool:
        """Whether there are folds or seeds enough: two, of which the t test can say something."""
        return any(arm.differences for arm in self.arms)


def analyse(results: Sequence[RunResult]) -> Statistics | None:
    """Statistics of the runs that are done; None where nothing varies in p."""
    done = [result for result in results if result.is_done]
    normalised = [result for result in done if not result.is_beside and result.p is not None]
    if not normalised:
        return None
    target = math.ceil(100 * max(min(result.curves["val_loss"]) for result in done)) / 100
    beside = [result for result in done if result.is_beside]
    arms: list[Arm] = []
    for start in dict.fromkeys(result.start for result in normalised):
        groups: dict[str, list[RunResult]] = {}
        for result in [*(run for run in normalised if run.start == start), *beside]:
            groups.setdefault(result.label(), []).append(result)
        arms += _arms(start, groups, target)
    return Statistics(arms, target, unit_of(done), _sharp_pairs(done, target))


def _arms(start: str, groups: Mapping[str, Sequence[RunResult]], target: float) -> list[Arm]:
    values = {
        name: {label: _values(runs, measure) for label, runs in groups.items()}
        for name, measure in _measures(target).items()
    }
    differences = {name: _differences(by_label) for name, by_label in values.items()}
    seconds = {label: _values(runs, lambda run: run.measured["seconds"]) for label, runs in groups.items()}
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


def _differences(by_label: Mapping[str, Mapping[Repeat, float]]) -> dict[str, Difference]:
    reference = by_label.get(REFERENCE, {})
    return all_tested({label: paired(values, reference) for label, values in by_label.items() if label != REFERENCE})


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
        name: all_tested({
            (q, p): paired(_values(larger.get(q, []), measure), _values(runs, measure))
            for (q, p), runs in sharp.items()
        })
        for name, measure in _measures(target).items()
    }  # fmt: skip
    return [SharpPair(q, p, {name: tested[name][q, p] for name in MEASURES}) for q, p in tested["best_val_loss"]]


def _values(runs: Sequence[RunResult], measure: _Measure) -> dict[Repeat, float]:
    return {run.repeat: measure(run) for run in runs}


def _measures(target: float) -> dict[str, _Measure]:
    return {
        "best_val_loss": lambda run: run.measured["best_val_loss"],
        "final_val_loss": lambda run: run.measured["final_val_loss"],
        "area": area_under_curve,
        "iterations_to_target": lambda run: iterations_to(target, run),
    }


def area_under_curve(run: RunResult) -> float:
    """The mean height of the curve of validation losses: a run that converges faster has less."""
    steps, losses = run.steps, run.curves["val_loss"]
    return float(losses[0]) if len(steps) < 2 else float(np.trapezoid(losses, steps)) / (steps[-1] - steps[0])


def iterations_to(target: float, run: RunResult) -> float:
    """Where the curve first comes down to the target, interpolated between validations; infinite if it never does."""
    before: tuple[float, float] | None = None
    for step, loss in zip(map(float, run.steps), map(float, run.curves["val_loss"]), strict=True):
        if loss <= target:
            if before is None:
                return step
            return before[0] + (step - before[0]) * (before[1] - target) / (before[1] - loss)
        before = (step, loss)
    return math.inf


def _median_ratio(values: Mapping[Repeat, float], reference: Mapping[Repeat, float]) -> float | None:
    ratios = [values[repeat] / reference[repeat] for repeat in values if reference.get(repeat)]
    return float(np.median(ratios)) if ratios else None
