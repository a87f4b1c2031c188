"""Results of sweeps whose truth is known."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from qknorm.experiments.results import RunResult

LAYERS = 2


def result(settings: dict[str, Any], losses: list[float], seconds: float = 10.0, **others: Any) -> RunResult:
    """A finished run with this course of losses; `others` are further fields, or curves."""
    normalised = settings.get("qk_norm") is None
    share = [0.5 for _ in losses]
    curves: dict[str, list[Any]] = {
        "step": [100 * (number + 1) for number in range(len(losses))],
        "val_loss": losses,
        "g": [[12.0] * LAYERS for _ in losses] if normalised else [],
        **{"entropy": share, "saturated": share, "use_of_bound": share * normalised, "largest_logit": share},
    }
    curves |= {name: others.pop(name) for name in list(others) if name in curves}
    measured = {"best_val_loss": min(losses), "final_val_loss": losses[-1], "best_step": 1, "seconds": seconds}
    return RunResult(Path(), "language", settings, "done", measured, curves, scale_start=12.0, **others)


def sweep(effects: dict[str, dict[float, float]], folds: int = 10, noise: float = 0.001) -> list[RunResult]:
    """Runs whose loss is that of the fold, plus an effect of p, plus noise."""
    rng, results = random.Random(0), []
    for fold in range(folds):
        difficulty = rng.gauss(0, 0.1)
        for start, by_p in effects.items():
            for p, effect in by_p.items():
                end = 2.0 + difficulty + effect + rng.gauss(0, noise)
                results.append(result({"p": p, "start": start, "fold": fold}, [end + 1, end + 0.3, end], 10 + p))
        end = 2.2 + difficulty + rng.gauss(0, noise)
        results.append(result({"qk_norm": "none", "fold": fold}, [end + 1, end + 0.3, end], 11.0))
    return results


NOTHING = {1.0: 0.0, 2.0: 0.0, 3.0: 0.0}
GAIN = {1.0: 0.0, 2.0: 0.0, 3.0: -0.02}
