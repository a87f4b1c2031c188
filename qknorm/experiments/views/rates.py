"""How much the learning rate matters, and how large logits become on the way (Wortsman et al. 2023).

Of each kind of normalisation, and with each optimiser or whatever else varies: the final loss over the learning rate,
and its sensitivity, the mean over all rates of how far it is above that of the best rate. A run that diverged counts as
an untrained model, and so does a loss above that: otherwise whoever diverges would seem the less sensitive.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qknorm.experiments.experiment import Experiment
from qknorm.experiments.figures import legend_below, look, panels, save, shades
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Answer, Picture
from qknorm.experiments.paired import Estimate, by_block, estimate
from qknorm.experiments.results import Repeat, RunResult, by_condition, unit_of

_RATE = "peak"
_ByRate = dict[float, list[RunResult]]


@dataclass
class Panel:
    """The runs that count under one condition, by norm and by rate; and how many have failed."""

    condition: str
    systems: dict[str, _ByRate] = field(default_factory=dict)
    failed: Counter[tuple[str, float]] = field(default_factory=Counter)

    @property
    def runs(self) -> list[RunResult]:
        return [run for by_rate in self.systems.values() for runs in by_rate.values() for run in runs]

    @property
    def rates(self) -> list[float]:
        return sorted({rate for by_rate in self.systems.values() for rate in by_rate})


def answer(_experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    """For each optimiser the best rate of every norm, and how much is lost at others."""
    panels = panels_of(results)
    sentences = list(map(_sentence, panels))
    return Answer(
        sentences=sentences,
        tables=[table for panel in panels for table in _tables(panel)],
        records=[{"condition": panel.condition} | record for panel in panels for record in _records(panel)],
        draw=partial(_draw, panels),
    )


def panels_of(results: Sequence[RunResult]) -> list[Panel]:
    """By what varies beside the rate, such as the optimiser; a baseline under each that it does not contradict."""
    starts = {run.start for run in results if not run.is_beside}
    panels = []
    for condition, runs in by_condition(results, leave_out=_RATE).items():
        panel = Panel(condition)
        for run in (run for run in runs if _RATE in run.settings):
            start = f", {run.start} start" if len(starts) > 1 and not run.is_beside else ""
            label, rate = run.label(leave_out=_RATE) + start, float(run.settings[_RATE])
            has_failed = run.status == "failed"
            panel.failed[label, rate] += has_failed
            if run.is_done or (has_failed and run.untrained_loss is not None):  # it had begun
                panel.systems.setdefault(label, {}).setdefault(rate, []).append(run)
        panels += [panel] * bool(panel.systems)
    return panels


def final_loss(run: RunResult) -> float:
    return run.measured["final_val_loss"]


def counted_loss(run: RunResult) -> float:
    """The final loss, at most that of an untrained model; of a run that diverged, just that."""
    most = math.inf if run.untrained_loss is None else run.untrained_loss
    return loss if run.is_done and (loss := final_loss(run)) < most else most


def largest_logit(run: RunResult) -> float:
    """Of all validations: a logit that was large and became small again counts."""
    return float(max(run.curves["largest_logit"]))


def best_rate(by_rate: Mapping[float, Sequence[RunResult]]) -> float:
    return min(by_rate, key=lambda rate: fmean(map(counted_loss, by_rate[rate])))


def sensitivity(by_rate: Mapping[float, Sequence[RunResult]]) -> Estimate:
    """Of each fold and seed by itself the mean over rates of the loss that counts, less that of its best rate."""
    by_repeat: dict[Repeat, list[RunResult]] = {}
    for run in itertools.chain.from_iterable(by_rate.values()):
        by_repeat.setdefault(run.repeat, []).append(run)
    losses = {repeat: list(map(counted_loss, runs)) for repeat, runs in by_repeat.items() if _finished(runs)}
    return estimate(by_block((repeat, fmean(of_rates) - min(of_rates)) for repeat, of_rates in losses.items()))


def _finished(runs: Sequence[RunResult]) -> list[RunResult]:
    return [run for run in runs if run.is_done]


def _finished_by_rate(by_rate: _ByRate) -> _ByRate:
    return {rate: finished for rate, runs in sorted(by_rate.items()) if (finished := _finished(runs))}


def _sentence(panel: Panel) -> str:
    opening = f"With {panel.condition}, the" if panel.condition else "The"
    listed = [f"{label} {_best(by_rate)}" for label, by_rate in panel.systems.items()]
    return f"{opening} lowest final losses over the learning rate were: {'; '.join(listed)}."


def _best(by_rate: _ByRate) -> str:
    if not _finished_by_rate(by_rate):
        return "failed at every rate"
    rate = best_rate(by_rate)
    lowest, lost = fmean(map(counted_loss, by_rate[rate])), sensitivity(by_rate).mean
    return f"{lowest:.4f} at {rate:g} (mean of all rates {lost:.4f} higher)"


def _tables(panel: Panel) -> list[Table]:
    rates = sorted({*panel.rates, *(rate for (_, rate), count in panel.failed.items() if count)})
    heading = ["", *(f"{rate:g}" for rate in rates)]

    def row(label: str, measure: Callable[[RunResult], float], digits: int) -> list[str]:
        finished = _finished_by_rate(panel.systems[label])
        return [
            label,
            *(_cell(_of_runs(finished.get(rate, []), measure), digits, panel.failed[label, rate]) for rate in rates),
        ]

    def over_rates(by_rate: _ByRate) -> list[str]:
        if not _finished_by_rate(by_rate):
            return ["", ""]
        return [f"{best_rate(by_rate):g}", _in_digits(sensitivity(by_rate), 4)]

    note = (
        f"Final loss by the highest learning rate, mean and 95 % interval over the {unit_of(panel.runs)}s that "
        "finished; sensitivity is by how much the mean over all rates is above the best. "
    ) + _about_failures(panel)
    losses = [[*row(label, final_loss, 4), *over_rates(by_rate)] for label, by_rate in panel.systems.items()]
    logits = [row(label, largest_logit, 1) for label in panel.systems]
    return [
        Table(panel.condition, note, [*heading, "best rate", "sensitivity"], losses),
        Table("", "The largest logit of all heads during training, in absolute value.", heading, logits),
    ]


def _about_failures(panel: Panel) -> str:
    """How runs that diverged are counted, with the number that they are counted as."""
    untrained = max((run.untrained_loss for run in panel.runs if run.untrained_loss is not None), default=None)
    if untrained is None:
        return ""
    return (
        "For it and for the best rate, a run that failed once it had begun, as by a loss that is not finite, counts as "
        f"a loss of {untrained:.4f}, that of an untrained model, and so does any loss above it (Wortsman et al. 2023)."
    )


def _of_runs(runs: Sequence[RunResult], measure: Callable[[RunResult], float]) -> Estimate | None:
    return estimate(by_block((run.repeat, measure(run)) for run in runs)) if runs else None


def _cell(value: Estimate | None, digits: int, failed: int) -> str:
    return ", ".join([_in_digits(value, digits)] * (value is not None) + [f"{failed} failed"] * bool(failed))


def _in_digits(value: Estimate | None, digits: int) -> str:
    if value is None:
        return ""
    half = "" if value.high is None else f" ± {value.high - value.mean:.{digits}f}"
    return f"{value.mean:.{digits}f}{half}"


def _records(panel: Panel) -> Iterator[dict[str, Any]]:
    """A row for each system and rate; the best rate and the sensitivity are those of the system."""
    for label, by_rate in panel.systems.items():
        finished = _finished_by_rate(by_rate)
        lost = _prefixed("sensitivity", sensitivity(by_rate) if finished else None)
        for rate, runs in sorted(by_rate.items()):
            done = finished.get(rate, [])
            yield (
                {"system": label, "rate": rate, "runs": len(runs), "finished": len(done)}
                | _prefixed("final_val_loss", _of_runs(done, final_loss))
                | _prefixed("largest_logit", _of_runs(done, largest_logit))
                | {"counted_loss": fmean(map(counted_loss, runs))}
                | {"is_best": bool(finished) and rate == best_rate(by_rate)}
                | lost
            )


def _prefixed(name: str, value: Estimate | None) -> dict[str, Any]:
    return {f"{name}_{key}": number for key, number in (asdict(value) if value else {}).items()}


def _draw(panels: Sequence[Panel], folder: Path) -> list[Picture]:
    """Loss and largest logit over the rate, and the largest logit over training."""
    if not any(_finished(panel.runs) for panel in panels):
        return []
    return [
        Picture(
            save(partial(_over_rates, panels), folder / "learning-rates"),
            "The learning rate",
            "Final validation loss (above; a run that diverged or ended higher stands at the loss of an untrained "
            "model) and the largest logit of all heads during training (below; of runs that finished).",
        ),
        Picture(
            save(partial(_over_training, panels), folder / "logits"),
            "The learning rate",
            "The largest logit of all heads while learning, one curve for each learning rate.",
        ),
    ]


def _over_rates(drawn: Sequence[Panel]) -> Figure:
    rows, conditions = ["final validation loss", "largest logit"], [panel.condition for panel in drawn]
    figure, axes = panels(rows, conditions, "highest learning rate", (3.6 * len(drawn), 5.2), share_y="row")
    for (above, below), panel in zip(axes.T, drawn, strict=True):
        for number, (label, by_rate) in enumerate(panel.systems.items()):
            _plot_spread(above, dict(sorted(by_rate.items())), counted_loss, label, number)
            _plot_spread(below, _finished_by_rate(by_rate), largest_logit, label, number)
        below.set(xscale="log", yscale="log")
    return legend_below(figure)


def _plot_spread(axis: Axes, by_rate: _ByRate, measure: Callable[[RunResult], float], label: str, number: int) -> None:
    """The mean over runs, and from the least to the most of them."""
    spread = [list(map(measure, runs)) for runs in by_rate.values()]
    rates, shape = list(by_rate), look(number)
    axis.plot(rates, list(map(fmean, spread)), label=label, markersize=4, linewidth=1.2, **shape)
    axis.fill_between(rates, list(map(min, spread)), list(map(max, spread)), color=shape["color"], alpha=0.15)


def _over_training(drawn: Sequence[Panel]) -> Figure:
    labels = list(dict.fromkeys(label for panel in drawn for label in panel.systems))
    rates = sorted({rate for panel in drawn for rate in panel.rates})
    colours = dict(zip(rates, shades(len(rates)), strict=True))
    conditions = [f"{panel.condition}\nlargest logit".strip() for panel in drawn]
    figure, axes = panels(conditions, labels, "iteration", (2.2 * len(labels) + 0.6, 2.0 * len(drawn) + 0.8))
    for axis, (panel, label) in zip(axes.flat, itertools.product(drawn, labels), strict=True):
        for rate, runs in _finished_by_rate(panel.systems.get(label, {})).items():
            values = np.mean([run.curves["largest_logit"] for run in runs], axis=0)
            axis.plot(runs[0].steps, values, color=colours[rate], linewidth=1.2, label=f"{rate:g}")
        axis.set_yscale("log")
    return legend_below(figure, columns=len(rates))
