"""The learning rates that the rows of a table tried with their first seed: how well each did on dev."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qknorm.experiments.cells import is_done
from qknorm.experiments.figures import STYLE, look, save
from qknorm.experiments.papers.plan import Contest, Entrant, Experiment
from qknorm.runs.contents import TranslationResult
from qknorm.runs.run import Run

_MEASURES = {"best dev BLEU": "best_dev_bleu", "dev loss at the end": "dev_loss"}


def draw(experiment: Experiment, contest: Contest, folder: Path, file: Path) -> Path | None:
    """A curve for each row of which several rates were trained; None if there is no such row."""
    curves = {experiment.row(entrant).title: _curve(entrant, folder) for entrant in contest.entrants}
    curves = {title: curve for title, curve in curves.items() if len(curve) > 1}
    if not curves:
        return None
    with mpl.rc_context(STYLE):
        return save(_figure(curves, contest.title), file)


def _curve(entrant: Entrant, folder: Path) -> dict[float, dict[str, float]]:
    """What the first seed measured at each rate."""
    firsts = {candidate.rate: folder / candidate.runs[0] for candidate in entrant.candidates}
    return {
        rate: {**Run(run).result(TranslationResult).content(), **Run(run).metrics()[-1].measures}
        for rate, run in firsts.items()
        if rate is not None and is_done(run)
    }


def _figure(curves: dict[str, dict[float, dict[str, float]]], title: str) -> Figure:
    figure, axes = plt.subplots(1, len(_MEASURES), figsize=(7.4, 3.1), layout="constrained")
    for axis, (label, measure) in zip(axes, _MEASURES.items(), strict=True):
        for number, (row, curve) in enumerate(curves.items()):
            axis.plot(list(curve), [own[measure] for own in curve.values()], label=row, markersize=5, **look(number))
        _scale(axis, sorted({rate for curve in curves.values() for rate in curve}))
        axis.set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    figure.suptitle(f"{title}, first seed", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _scale(axis: Axes, rates: list[float]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axis.minorticks_off()
    axis.set_xlabel("highest learning rate")
