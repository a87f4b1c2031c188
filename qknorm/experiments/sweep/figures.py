"""The figures of the second paper from a sweep, one set for each start of α, and learning rate if there are several.

1: validation loss against iterations, mean over runs, and its difference to p = 2. 2: box plot of training time per
p. 3: one panel per fold, or seed where there are no folds. 4: α over time, per layer. 5: what the attention looks like
over time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qknorm.experiments.figures import MARKERS, STYLE, save
from qknorm.experiments.sweep.answer import Picture
from qknorm.experiments.sweep.results import RunResult, by_condition, unit_of
from qknorm.experiments.sweep.statistics import by_block, estimate

_CAPTIONS = {
    "losses": "Validation loss while learning, one curve for each p, mean over the {unit}s (left), and how far each is "
    "from p = 2 (right; below the line is better).",
    "times": "Training time for each p: the box holds the middle half of the runs, the line is the median, the diamond "
    "the mean.",
    "folds": "The same curves for every {unit} by itself: a difference that means something is there in most of them.",
    "alphas": "g (here α) of each layer relative to where it started: above 1 attention became sharper.",
    "attention": "How spread out attention is, how much of it is saturated, and how much of its bound it uses.",
}
_STARTS = {
    "same": "Every p starts with the same α, so that a larger p starts with sharper attention",
    "comparable": "Every p starts with attention equally sharp",
}
_REFERENCE = 2.0
_DASHES = ("--", ":", "-.")


def draw(results: Sequence[RunResult], folder: Path) -> list[Picture]:
    """All figures of a sweep that is about p."""
    done = [result for result in results if result.status == "done"]
    drawn = (_draw_condition(condition, runs, folder) for condition, runs in by_condition(done).items())
    return list(itertools.chain.from_iterable(drawn))


def _draw_condition(condition: str, runs: Sequence[RunResult], folder: Path) -> list[Picture]:
    beside, written = [run for run in runs if run.is_beside], []
    for start in dict.fromkeys(run.start for run in runs if not run.is_beside and run.p is not None):
        curves = Curves([run for run in runs if run.start == start and not run.is_beside], beside)
        heading = _STARTS[start] + (f", {condition}" if condition else "")
        ending = "_".join([start, *condition.replace(" ", "-").split(",-")]).rstrip("_")
        for number, (name, caption) in enumerate(_CAPTIONS.items(), 1):
            with mpl.rc_context(STYLE):
                path = save(getattr(curves, name)(), folder / f"figure-{number}-{ending}")
            written.append(Picture(path, heading, caption.format(unit=curves.unit)))
    return written


class Curves:
    """The runs of one start, by p, and what stands beside them, such as no normalisation."""

    def __init__(self, runs: Sequence[RunResult], beside: Sequence[RunResult]) -> None:
        self.unit = unit_of(runs)
        self.by_p = {
            p: [run for run in runs if run.p == p] for p in sorted({run.p for run in runs if run.p is not None})
        }
        labels = dict.fromkeys(run.label for run in beside)
        self.beside = {label: [run for run in beside if run.label == label] for label in labels}
        # viridis keeps its order with and without colour vision, and in grey; markers help where lines meet.
        shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.92, len(self.by_p)))
        self.looks: dict[float, dict[str, Any]] = {
            p: {"color": shade, "marker": MARKERS[number % len(MARKERS)], "markersize": 3.5, "linewidth": 1.2}
            for number, (p, shade) in enumerate(zip(self.by_p, shades, strict=True))
        }
        self.looks_beside: dict[str, dict[str, Any]] = {
            label: {"color": "black", "linestyle": _DASHES[number % len(_DASHES)], "linewidth": 1.2}
            for number, label in enumerate(self.beside)
        }

    def losses(self) -> Figure:
        """Figure 1, and what it hides: the curves' differences to p = 2, paired by fold or seed."""
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
        for p, runs in self.by_p.items():
            left.plot(runs[0].steps, _mean_curve(runs), label=f"p = {p:g}", **self.looks[p])
        for label, runs in self.beside.items():
            left.plot(runs[0].steps, _mean_curve(runs), label=label, **self.looks_beside[label])
        left.set(xlabel="iteration", ylabel="validation loss (nats per character)", title=f"mean over {self.unit}s")
        reference = {run.repeat: run for run in self.by_p.get(_REFERENCE, [])}
        right.axhline(0, color="#888888", linewidth=0.8)
        compared = [(runs, self.looks[p]) for p, runs in self.by_p.items() if p != _REFERENCE]
        compared += [(runs, self.looks_beside[label]) for label, runs in self.beside.items()]
        for number, (runs, look) in enumerate(compared, 1):
            _plot_difference(right, runs, reference, look, aside=0.03 * number)
        title = f"paired by {self.unit}, 95 % interval at the end"
        right.set(xlabel="iteration", ylabel="difference to p = 2", title=title)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure

    def times(self) -> Figure:
        """Figure 2: box, whiskers to 1.5 IQR, outliers, median line, mean as a diamond."""
        figure, axis = plt.subplots(figsize=(4.8, 3.0), layout="constrained")
        groups = {f"{p:g}": [run.measured["seconds"] for run in runs] for p, runs in self.by_p.items()}
        for label, runs in self.beside.items():
            groups[label.replace(" ", "\n", 1)] = [run.measured["seconds"] for run in runs]
        drawn = axis.boxplot(
            list(groups.values()),
            tick_labels=list(groups),
            whis=1.5,
            showmeans=True,
            patch_artist=True,
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 4},
            medianprops={"color": "#d55e00", "linewidth": 1.5},
            flierprops={"marker": "o", "markersize": 3},
        )
        for box in drawn["boxes"]:
            box.set_facecolor("#a6bddb")
        axis.set(xlabel="p", ylabel="training time (s)")
        return figure

    def folds(self) -> Figure:
        """Figure 3: one panel per fold, its seeds averaged; or per seed where there are no folds."""
        blocks = list(dict.fromkeys(run.block for runs in self.by_p.values() for run in runs))
        columns = min(5, len(blocks))
        rows = math.ceil(len(blocks) / columns)
        size = (max(1.9 * columns, 4.6), 1.7 * rows + 0.7)
        figure, axes = plt.subplots(
            rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
        )
        for axis, block in zip(axes.flat, blocks, strict=False):
            for p, runs in self.by_p.items():
                if own := [run for run in runs if run.block == block]:
                    look = self.looks[p] | {"markersize": 2, "linewidth": 0.9}
                    axis.plot(own[0].steps, _mean_curve(own), label=f"p = {p:g}", **look)
            for label, runs in self.beside.items():
                if own := [run for run in runs if run.block == block]:
                    axis.plot(own[0].steps, _mean_curve(own), label=label, **self.looks_beside[label])
            axis.set_title(", ".join(f"{key} {value + 1 if key == 'fold' else value}" for key, value in block))
        for axis in axes.flat[len(blocks) :]:
            axis.set_visible(False)
        _label_edges(axes, len(blocks), "validation loss")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure

    def alphas(self) -> Figure:
        """Figure 4: α of each layer relative to its start, mean over runs."""
        layers = len(next(iter(self.by_p.values()))[0].alphas[0])
        columns = min(3, layers)
        rows = math.ceil(layers / columns)
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(7.2, 1.9 * rows + 0.7),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for layer, axis in zip(range(layers), axes.flat, strict=False):
            for p, runs in self.by_p.items():
                alpha = np.mean([[alphas[layer] for alphas in run.alphas] for run in runs], axis=0)
                start = runs[0].alpha_start or 1.0
                label = f"p = {p:g} (from {start:.3g})"
                axis.plot([0, *runs[0].steps], [1, *alpha / start], label=label, **self.looks[p] | {"markersize": 2.5})
            axis.set_title(f"layer {layer + 1}")
        for axis in axes.flat[layers:]:
            axis.set_visible(False)
        _label_edges(axes, layers, "α / its start")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure

    def attention(self) -> Figure:
        """Figure 5: how spread out the weights are, how many rows are saturated, how much of the bound is used."""
        figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.9), layout="constrained")
        panels = (
            ("entropy", "entropy / its maximum"),
            ("saturated", "rows with a weight > 0.99"),
            ("use_of_bound", "largest logit / its bound"),
        )
        for axis, (name, title) in zip(axes, panels, strict=True):
            for p, runs in self.by_p.items():
                values = np.mean([getattr(run, name) for run in runs], axis=0)
                axis.plot(runs[0].steps, values, label=f"p = {p:g}", **self.looks[p] | {"markersize": 2.5})
            for label, runs in self.beside.items():
                if getattr(runs[0], name):
                    values = np.mean([getattr(run, name) for run in runs], axis=0)
                    axis.plot(runs[0].steps, values, label=label, **self.looks_beside[label])
            axis.set(xlabel="iteration", title=title)
            axis.set_ylim(bottom=0)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def _mean_curve(runs: Sequence[RunResult]) -> Any:
    return np.mean([run.val_losses for run in runs], axis=0)


def _plot_difference(
    axis: Axes, runs: Sequence[RunResult], reference: dict[Any, RunResult], look: dict[str, Any], aside: float
) -> None:
    """The mean difference to the reference, and its interval at the end, drawn aside of the curve's last point."""
    steps = runs[0].steps
    matched = [
        (run, reference[run.repeat])
        for run in runs
        if run.repeat in reference and reference[run.repeat].steps == run.steps == steps
    ]
    if not matched:
        return
    differences = np.array(
        by_block((run.repeat, np.subtract(run.val_losses, other.val_losses)) for run, other in matched)
    )
    axis.plot(steps, differences.mean(0), **look)
    end = estimate(differences[:, -1].tolist())
    if end.high is not None:
        shape = {"color": look["color"], "marker": look.get("marker", "_"), "markersize": 3.5}
        axis.errorbar(steps[-1] * (1 + aside), end.mean, end.high - end.mean, capsize=2, linewidth=1, **shape)


def _label_edges(axes: Any, used: int, y_label: str) -> None:
    """Labels at the outer panels only; the lowest used panel of each column is an outer one."""
    columns = axes.shape[1]
    for number, axis in enumerate(axes.flat[:used]):
        if number % columns == 0:
            axis.set_ylabel(y_label)
        if number + columns >= used:
            axis.set_xlabel("iteration")
            axis.tick_params(labelbottom=True)
