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
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from qknorm.experiments.experiment import Experiment
from qknorm.experiments.figures import STYLE, look, save
from qknorm.experiments.page import Answer, Picture, Table
from qknorm.experiments.paired import Estimate, by_block, estimate
from qknorm.experiments.results import Repeat, RunResult, by_condition, unit_of

_RATE = "peak"
_ByRate = dict[float, list[RunResult]]
_Panel = dict[str, _ByRate]  # by the label of a normalisation
_Place = tuple[str, str, float]  # in the tables: condition, label, rate


def answer(_experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    """For each optimiser the best rate of every norm, and how much is lost at others."""
    whole = Answer(draw=partial(draw, results))
    failed = Counter(place for place, run in _placed(results) if run.status == "failed")
    for condition, panel in _panels(results).items():
        whole.tables.extend(_tables(condition, panel, failed))
        whole.verdict.append(_sentence(condition, panel))
        whole.records.extend({"condition": condition} | record for record in _records(panel))
        whole.numbers.setdefault("rates", []).append({"condition": condition, "systems": _numbers(panel)})
    whole.sentences.extend(whole.verdict)
    return whole


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


def _placed(results: Sequence[RunResult]) -> Iterator[tuple[_Place, RunResult]]:
    """Where each run stands; a baseline under each condition that it does not contradict."""
    starts = {run.start for run in results if not run.is_beside}
    for condition, runs in by_condition(results, leave_out=_RATE).items():
        for run in runs:
            if _RATE in run.settings:
                start = f", {run.start} start" if len(starts) > 1 and not run.is_beside else ""
                yield (condition, run.label(leave_out=_RATE) + start, float(run.settings[_RATE])), run


def _panels(results: Sequence[RunResult]) -> dict[str, _Panel]:
    """The runs that count, by what varies beside the rate, such as the optimiser, then by norm and by rate."""
    panels: dict[str, _Panel] = {}
    for (condition, label, rate), run in _placed(results):
        diverged = run.status == "failed" and run.untrained_loss is not None  # it had begun
        if run.is_done or diverged:
            panels.setdefault(condition, {}).setdefault(label, {}).setdefault(rate, []).append(run)
    return panels


def _sentence(condition: str, panel: _Panel) -> str:
    opening = f"With {condition}, the" if condition else "The"
    listed = [f"{label} {_best(by_rate) or 'failed at every rate'}" for label, by_rate in panel.items()]
    return f"{opening} lowest final losses over the learning rate were: {'; '.join(listed)}."


def _finished(runs: Sequence[RunResult]) -> list[RunResult]:
    return [run for run in runs if run.is_done]


def _finished_by_rate(by_rate: _ByRate) -> _ByRate:
    return {rate: finished for rate, runs in by_rate.items() if (finished := _finished(runs))}


def _best(by_rate: _ByRate) -> str:
    if not _finished_by_rate(by_rate):
        return ""
    rate = best_rate(by_rate)
    lowest, lost = fmean(map(counted_loss, by_rate[rate])), sensitivity(by_rate).mean
    return f"{lowest:.4f} at {rate:g} (mean of all rates {lost:.4f} higher)"


def _tables(condition: str, panel: _Panel, failed: Mapping[_Place, int]) -> list[Table]:
    rates = sorted({*_rates(panel), *(rate for place, _, rate in failed if place == condition)})
    heading = ["", *(f"{rate:g}" for rate in rates)]

    def row(label: str, measure: Callable[[RunResult], float], digits: int) -> list[str]:
        return [
            _cell(_finished(panel[label].get(rate, [])), measure, digits, failed.get((condition, label, rate), 0))
            for rate in rates
        ]

    def over_rates(by_rate: _ByRate) -> list[str]:
        if not _finished_by_rate(by_rate):
            return ["", ""]
        return [f"{best_rate(by_rate):g}", _in_digits(sensitivity(by_rate), 4)]

    losses = [[label, *row(label, final_loss, 4), *over_rates(by_rate)] for label, by_rate in panel.items()]
    note = (
        f"Final loss by the highest learning rate, mean and 95 % interval over the {_unit(panel)}s that finished; "
        "sensitivity is by how much the mean over all rates is above the best. "
    ) + _about_failures(panel)
    logits = [[label, *row(label, largest_logit, 1)] for label in panel]
    return [
        Table(condition, note, [*heading, "best rate", "sensitivity"], losses),
        Table("", "The largest logit of all heads during training, in absolute value.", heading, logits),
    ]


def _about_failures(panel: _Panel) -> str:
    """How runs that diverged are counted, with the number that they are counted as."""
    untrained = max((run.untrained_loss for run in _runs(panel) if run.untrained_loss is not None), default=None)
    if untrained is None:
        return ""
    return (
        "For it and for the best rate, a run that failed once it had begun, as by a loss that is not finite, counts as "
        f"a loss of {untrained:.4f}, that of an untrained model, and so does any loss above it (Wortsman et al. 2023)."
    )


def _runs(panel: _Panel) -> list[RunResult]:
    return [run for by_rate in panel.values() for runs in by_rate.values() for run in runs]


def _unit(panel: _Panel) -> str:
    return unit_of(_runs(panel))


def _rates(panel: _Panel) -> list[float]:
    return sorted({rate for by_rate in panel.values() for rate in by_rate})


def _cell(runs: Sequence[RunResult], measure: Callable[[RunResult], float], digits: int, failed: int) -> str:
    parts = [_in_digits(estimate(by_block((run.repeat, measure(run)) for run in runs)), digits)] if runs else []
    return ", ".join([*parts, f"{failed} failed"] if failed else parts)


def _in_digits(value: Estimate, digits: int) -> str:
    half = "" if value.high is None else f" ± {value.high - value.mean:.{digits}f}"
    return f"{value.mean:.{digits}f}{half}"


def _records(panel: _Panel) -> Iterator[dict[str, Any]]:
    """A row for each system and rate; the best rate and the sensitivity are those of the system."""
    for label, by_rate in panel.items():
        finished = _finished_by_rate(by_rate)
        lost = asdict(sensitivity(by_rate)) if finished else {}
        for rate, runs in sorted(by_rate.items()):
            row = {"system": label, "rate": rate, "runs": len(runs), "finished": len(finished.get(rate, []))}
            for name, measure in (("final_val_loss", final_loss), ("largest_logit", largest_logit)):
                values = by_block((run.repeat, measure(run)) for run in finished.get(rate, []))
                row |= {f"{name}_{key}": value for key, value in (asdict(estimate(values)) if values else {}).items()}
            row |= {
                "counted_loss": fmean(map(counted_loss, runs)),
                "is_best": bool(finished) and rate == best_rate(by_rate),
            }
            yield row | {f"sensitivity_{key}": value for key, value in lost.items()}


def _numbers(panel: _Panel) -> list[dict[str, Any]]:
    return [
        {
            "system": label,
            "rate": rate,
            "final_val_loss": list(map(final_loss, _finished(runs))),
            "largest_logit": list(map(largest_logit, _finished(runs))),
            "counted_loss": list(map(counted_loss, runs)),
        }
        for label, by_rate in panel.items()
        for rate, runs in sorted(by_rate.items())
    ]


def draw(results: Sequence[RunResult], folder: Path) -> list[Picture]:
    """Loss and largest logit over the rate, and the largest logit over training."""
    panels = _panels(results)
    if not any(_finished(_runs(panel)) for panel in panels.values()):
        return []
    with mpl.rc_context(STYLE):
        return [
            Picture(
                save(_over_rates(panels), folder / "learning-rates"),
                "The learning rate",
                "Final validation loss (above; a run that diverged or ended higher stands at the loss of an untrained "
                "model) and the largest logit of all heads during training (below; of runs that finished).",
            ),
            Picture(
                save(_over_training(panels), folder / "logits"),
                "The learning rate",
                "The largest logit of all heads while learning, one curve for each learning rate.",
            ),
        ]


def _over_rates(panels: Mapping[str, _Panel]) -> Figure:
    figure, axes = plt.subplots(
        2, len(panels), figsize=(3.6 * len(panels), 5.2), sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for column, (condition, panel) in enumerate(panels.items()):
        for axis, measure in zip(axes[:, column], (counted_loss, largest_logit), strict=True):
            for number, (label, by_rate) in enumerate(panel.items()):
                shown = by_rate if measure is counted_loss else _finished_by_rate(by_rate)
                spread = {rate: list(map(measure, runs)) for rate, runs in sorted(shown.items())}
                rates, means = list(spread), list(map(fmean, spread.values()))
                axis.plot(rates, means, label=label, markersize=4, linewidth=1.2, **look(number))
                axis.fill_between(
                    rates,
                    list(map(min, spread.values())),
                    list(map(max, spread.values())),
                    color=look(number)["color"],
                    alpha=0.15,
                )
            axis.set_xscale("log")
        axes[0, column].set_title(condition)
        axes[1, column].set_yscale("log")
        axes[1, column].set_xlabel("highest learning rate")
    axes[0, 0].set_ylabel("final validation loss")
    axes[1, 0].set_ylabel("largest logit")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _over_training(panels: Mapping[str, _Panel]) -> Figure:
    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    rates = sorted({rate for panel in panels.values() for rate in _rates(panel)})
    shades = dict(zip(rates, mpl.colormaps["viridis"](np.linspace(0.0, 0.92, len(rates))), strict=True))
    figure, axes = plt.subplots(
        len(panels),
        len(labels),
        figsize=(2.2 * len(labels) + 0.6, 2.0 * len(panels) + 0.8),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, (condition, panel) in zip(axes, panels.items(), strict=True):
        row[0].set_ylabel(f"{condition}\nlargest logit".strip())
        for axis, label in zip(row, labels, strict=True):
            for rate, runs in sorted(_finished_by_rate(panel.get(label, {})).items()):
                values = np.mean([run.curves["largest_logit"] for run in runs], axis=0)
                axis.plot(runs[0].steps, values, color=shades[rate], linewidth=1.2, label=f"{rate:g}")
            axis.set_yscale("log")
    for axis, label in zip(axes[0], labels, strict=True):
        axis.set_title(label)
    for axis in axes[-1]:
        axis.set_xlabel("iteration")
    drawn = {label: line for axis in axes.flat for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=len(rates))
    return figure
