"""Learning rates: what changes with each update, and what changes with the validations.

A new schedule is a class with its own `rate` and its line in the table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

_BASELINE_RATE = 3e-4
_PATIENCE, _DECAY = 3, 0.8  # of the first paper: when falling scores lower the rate, and by what


@dataclass(frozen=True)
class Schedule(ABC):
    """The learning rate of update 1, 2, …, before the validations have their say."""

    peak: float
    warmup: int = 0
    total: int = 0
    final: float | None = None
    decay: int = 0

    warms_up: ClassVar[bool] = True
    ends_in_decay: ClassVar[bool] = False
    """Whether the last `decay` updates are a decay of its own; then falling scores do not lower the rate."""

    @abstractmethod
    def rate(self, step: int) -> float:
        """The learning rate of this update."""

    @property
    def decay_start(self) -> int | None:
        """The last update before the decay, for schedules that end in one."""
        return self.total - self.decay if self.ends_in_decay else None

    @classmethod
    def usual_peak(cls, dim: int, warmup: int) -> float:
        """The peak of a recipe that names none."""
        return peak_of_paper(dim, warmup)


@dataclass(frozen=True)
class Constant(Schedule):
    """`peak` throughout: the first paper's baseline."""

    warms_up: ClassVar[bool] = False

    def rate(self, step: int) -> float:  # noqa: ARG002
        return self.peak

    @classmethod
    def usual_peak(cls, dim: int, warmup: int) -> float:  # noqa: ARG003
        return _BASELINE_RATE


@dataclass(frozen=True)
class WarmupFlat(Schedule):
    """Up to `peak` over the warm-up, then flat: the first paper's QKNorm model."""

    def rate(self, step: int) -> float:
        return self.peak * step / self.warmup if step <= self.warmup else self.peak


@dataclass(frozen=True)
class Vaswani(Schedule):
    """Up to `peak` over the warm-up, then falling with 1/√step."""

    def rate(self, step: int) -> float:
        if step <= self.warmup:
            return self.peak * step / self.warmup
        return self.peak * math.sqrt(max(self.warmup, 1) / step)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Up to `peak`, then down to `final` at `total` updates (nanoGPT); where that is not given to `peak`/10."""

    def rate(self, step: int) -> float:
        if step <= self.warmup:
            return self.peak * step / self.warmup
        progress = min(1.0, (step - self.warmup) / max(1, self.total - self.warmup))
        final = self.peak / 10 if self.final is None else self.final
        return final + (self.peak - final) * 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Trapezoid(Schedule):
    """Up, flat, and over the last `decay` of `total` updates in a straight line towards zero.

    Until then it does not depend on `total`, so a run that has ended can be prolonged from where its decay began.
    """

    ends_in_decay: ClassVar[bool] = True

    def rate(self, step: int) -> float:
        left = self.total + 1 - step  # the last update still moves
        return self.peak * min(1.0, step / max(self.warmup, 1), max(left, 0) / (self.decay + 1))


SCHEDULES: dict[str, type[Schedule]] = {
    "warmup-flat": WarmupFlat,
    "constant": Constant,
    "vaswani": Vaswani,
    "cosine": Cosine,
    "trapezoid": Trapezoid,
}


def peak_of_paper(dim: int, warmup: int) -> float:
    """d^-½ · warmup^-½: where the linear warm-up of Vaswani et al. ends."""
    return 1 / math.sqrt(dim * warmup)


def factor_after(scores: Sequence[float]) -> float:
    """What the rate is multiplied by after the newest validation: less if it is below each of the three before it."""
    before = scores[-1 - _PATIENCE : -1]
    return _DECAY if len(before) == _PATIENCE and scores[-1] < min(before) else 1.0
