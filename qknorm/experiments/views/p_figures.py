"""The figures of the second paper from a sweep, one set for each start of α, and learning rate if there are several.

1: validation loss against iterations, mean over runs, and its difference to p = 2. 2: box plot of training time per
p. 3: one panel per fold, or seed where there are no folds. 4: α over time, per layer. 5: what the attention looks like
over time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qknorm.experiments.figures import MARKERS, legend_below, panels, save, shades
from qknorm.experiments.page import Picture
from qknorm.experiments.paired import by_block, estimate
from qknorm.experiments.results import RunResult, by_condition, unit_of

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
_PANELS = {
    "entropy": "entropy / its maximum",
    "saturated": "rows with a weight > 0.99",
    "use_of_bound": "largest logit / its bound",
}
_DASHES = ("--", ":", "-.")
_Look = dict[str, Any]


def draw(results: Sequence[RunResult], folder: Path) -> list[Picture]:
    """All figures of a sweep that is about p."""
    done = [result for result in results if result.is_done]
    drawn = (_draw_condition(condition, runs, folder) for condition, runs in by_condition(done).items())
    return list(itertools.chain.from_iterable(drawn))


def _draw_condition(condition: str, runs: Sequence[RunResult], folder: Path) -> Iterator[Picture]:
    beside = [run for run in runs if run.is_beside]
    for start in dict.fromkeys(run.start for run in runs if not run.is_beside and run.p is not None):
        curves = Curves([run for run in runs if run.start == start and not run.is_beside], beside)
        heading = _STARTS[start] + (f", {condition}" if condition else "")
        ending = "_".join([start, *condition.replace(" ", "-").split(",-")]).rstrip("_")
        for number, (name, caption) in enumerate(_CAPTIONS.items(), 1):
            path = save(getattr(curves, name), folder / f"figure-{number}-{ending}")
            yield Picture(path, heading, caption.format(unit=curves.unit))


class Curves:
    """The runs of one start, by p, and what stands beside them, such as no normalisation."""

    def __init__(self, runs: Sequence[RunResult], beside: Sequence[RunResult]) -> None:
        self.unit = unit_of(runs)
        self.by_p = {
            p: [run for run in runs if run.p == p] for p in sorted({run.p for run in runs if run.p is not None})
        }
        labels = dict.fromkeys(run.label() for run in beside)
        self.beside = {label: [run for run in beside if run.label() == label] for label in labels}
        self.looks: dict[float, _Look] = {
            p: {"color": shade, "marker": MARKERS[number % len(MARKERS)], "markersize": 3.5, "linewidth": 1.2}
            for number, (p, shade) in enumerate(zip(self.by_p, shades(len(self.by_p)), strict=True))
        }
        self.looks_beside: dict[str, _Look] = {
            label: {"color": "black", "linestyle": _DASHES[number % len(_DASHES)], "linewidth": 1.2}
            for number, label in enumerate(self.beside)
        }

    def _systems(self, **of_p: Any) -> list[tuple[str, list[RunResult], _Look]]:
        """Each with its label and its look; `of_p` changes that of every p."""
        values = [(f"p = {p:g}", runs, self.looks[p] | of_p) for p, runs in self.by_p.items()]
        return values + [(label, runs, self.looks_beside[label]) for label, runs in self.beside.items()]

    def losses(self) -> Figure:
        """Figure 1, and what it hides: the curves' differences to p = 2, paired by fold or seed."""
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
        for label, runs, look in self._systems():
            left.plot(runs[0].steps, _mean_curve(runs, "val_loss"), label=label, **look)
        left.set(xlabel="iteration", ylabel="validation loss (nats per character)", title=f"mean over {self.unit}s")
        reference = {run.repeat: run for run in self.by_p.get(2.0, [])}
        right.axhline(0, color="#888888", linewidth=0.8)
        compared = [system for system in self._systems() if system[0] != "p = 2"]
        for number, (_, runs, look) in enumerate(compared, 1):
            _plot_difference(right, runs, reference, look, aside=0.03 * number)
        title = f"paired by {self.unit}, 95 % interval at the end"
        right.set(xlabel="iteration", ylabel="difference to p = 2", title=title)
        return legend_below(figure)

    def times(self) -> Figure:
        """Figure 2: box, whiskers to 1.5 IQR, outliers, median line, mean as a diamond."""
        figure, axis = plt.subplots(figsize=(4.8, 3.0), layout="constrained")
        labels = [*(f"{p:g}" for p in self.by_p), *(label.replace(" ", "\n", 1) for label in self.beside)]
        drawn = axis.boxplot(
            [[run.measured["seconds"] for run in runs] for _, runs, _ in self._systems()],
            tick_labels=labels,
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
        figure, axes = _wrapped(len(blocks), 5, "validation loss", wide=(1.9, 4.6), high=1.7)
        for axis, block in zip(axes, blocks, strict=True):
            for label, all_runs, look in self._systems(markersize=2, linewidth=0.9):
                if runs := [run for run in all_runs if run.block == block]:
                    axis.plot(runs[0].steps, _mean_curve(runs, "val_loss"), label=label, **look)
            axis.set_title(", ".join(f"{key} {value + 1 if key == 'fold' else value}" for key, value in block))
        return legend_below(figure)

    def alphas(self) -> Figure:
        """Figure 4: α of each layer relative to its start, mean over runs."""
        layers = len(next(iter(self.by_p.values()))[0].curves["g"][0])
        figure, axes = _wrapped(layers, 3, "α / its start", wide=(0, 7.2), high=1.9)
        for layer, axis in enumerate(axes):
            for p, runs in self.by_p.items():
                start = runs[0].scale_start or 1.0
                alpha = _mean_curve(runs, "g")[:, layer] / start
                label = f"p = {p:g} (from {start:.3g})"
                axis.plot([0, *runs[0].steps], [1, *alpha], label=label, **self.looks[p] | {"markersize": 2.5})
            axis.set_title(f"layer {layer + 1}")
        return legend_below(figure)

    def attention(self) -> Figure:
        """Figure 5: how spread out the weights are, how many rows are saturated, how much of the bound is used."""
        figure, (axes,) = panels([""], list(_PANELS.values()), "iteration", (7.2, 2.9), share_y=False)
        for axis, name in zip(axes, _PANELS, strict=True):
            for label, runs, look in self._systems(markersize=2.5):
                if runs[0].curves[name]:
                    axis.plot(runs[0].steps, _mean_curve(runs, name), label=label, **look)
            axis.set_ylim(bottom=0)
        return legend_below(figure)


def _mean_curve(runs: Sequence[RunResult], name: str) -> Any:
    return np.mean([run.curves[name] for run in runs], axis=0)


def _plot_difference(
    axis: Axes, runs: Sequence[RunResult], reference: dict[Any, RunResult], look: _Look, aside: float
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
    losses = ((run.repeat, np.subtract(run.curves["val_loss"], other.curves["val_loss"])) for run, other in matched)
    differences = np.array(by_block(losses))
    axis.plot(steps, differences.mean(0), **look)
    end = estimate(differences[:, -1].tolist())
    if end.high is not None:
        shape = {"color": look["color"], "marker": look.get("marker", "_"), "markersize": 3.5}
        axis.errorbar(steps[-1] * (1 + aside), end.mean, end.high - end.mean, capsize=2, linewidth=1, **shape)


def _wrapped(count: int, most: int, y_label: str, wide: tuple[float, float], high: float) -> tuple[Figure, list[Axes]]:
    """Panels of one scale, at most so many in a row; wide: one of them, and the least that a figure has."""
    columns = min(most, count)
    rows = math.ceil(count / columns)
    size = (max(wide[0] * columns, wide[1]), high * rows + 0.7)
    figure, grid = panels([y_label] * rows, [""] * columns, "iteration", size)
    for axis in grid.flat[count:]:
        axis.set_visible(False)
    for axis in grid[-2:-1, count % columns or columns :].flat:  # the lowest that is seen of its column
        axis.set_xlabel("iteration")
        axis.tick_params(labelbottom=True)
    return figure, list(grid.flat[:count])
