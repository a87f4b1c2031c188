"""Learning rates: what changes with each update, and what changes with the validations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qknorm.runs.recipe import ScheduleKind


@dataclass(frozen=True)
class Schedule:
    """The learning rate of update 1, 2, …, before the validations have their say.

    warmup-flat: up to `peak` over the warm-up, then flat (the first paper's QKNorm model).
    constant: `peak` throughout (its baseline). vaswani: up as before, then falling with 1/√step.
    cosine: up, then down to `final` at `total` updates (nanoGPT); without it to `peak`/10.
    trapezoid: up, flat, and over the last `decay` of `total` updates in a straight line towards zero. Until then it
    does not depend on `total`, so a run that has ended can be prolonged from where its decay began.
    """

    kind: ScheduleKind
    peak: float
    warmup: int = 0
    total: int = 0
    final: float | None = None
    decay: int = 0

    @property
    def decay_start(self) -> int | None:
        """The last update before a trapezoid's decay; other kinds have none."""
        return self.total - self.decay if self.kind == "trapezoid" else None

    def rate(self, step: int) -> float:
        if self.kind == "trapezoid":
            left = self.total + 1 - step  # the last update still moves
            return self.peak * min(1.0, step / max(self.warmup, 1), max(left, 0) / (self.decay + 1))
        if self.kind == "constant":
            return self.peak
        if step <= self.warmup:
            return self.peak * step / self.warmup
        if self.kind == "warmup-flat":
            return self.peak
        if self.kind == "vaswani":
            return self.peak * math.sqrt(max(self.warmup, 1) / step)
        progress = min(1.0, (step - self.warmup) / max(1, self.total - self.warmup))
        final = self.peak / 10 if self.final is None else self.final
        return final + (self.peak - final) * 0.5 * (1 + math.cos(math.pi * progress))


def peak_of_paper(dim: int, warmup: int) -> float:
    """d^-½ · warmup^-½: where the linear warm-up of Vaswani et al. ends."""
    return 1 / math.sqrt(dim * warmup)


@dataclass
class ValidationDecay:
    """Multiplies the rate by 0.8 whenever the score is strictly below each of the previous three (after warm-up)."""

    factor: float = 1.0
    patience: int = 3
    decay: float = 0.8

    def update(self, scores: list[float], warmed_up: bool) -> bool:
        """Take note of the newest of all scores so far; says whether the rate was lowered."""
        recent = scores[-1 - self.patience : -1]
        if warmed_up and len(recent) == self.patience and all(scores[-1] < score for score in recent):
            self.factor *= self.decay
            return True
        return False
