"""What the rows of a table were trained with: the plan that minutes gave, and the learning rates that they tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from qknorm.experiments.experiment import Experiment
from qknorm.experiments.figures import legend_below, look, save
from qknorm.experiments.minutes import PLAN
from qknorm.experiments.results import CorpusRows, Entrant, RunResult, contests_of
from qknorm.runs.recipe import load_recipe
from qknorm.runs.run import Run

_MEASURES = {"best dev BLEU": "best_dev_bleu", "dev loss at the end": "dev_loss"}


def planned_for(experiment: Experiment, corpus: str, folder: Path) -> str:
    """The numbers for which the minutes of a run stand; empty at sizes without minutes."""
    plan = folder / corpus / PLAN
    if not plan.exists():
        return ""
    recipe = load_recipe(plan)
    model, training = recipe.model, recipe.training
    return (
        f"Planned{f' for {title}' if (title := experiment.title_of(corpus)) else ''}: {model.encoder_layers} + "
        f"{model.decoder_layers} layers, d = {model.dim}, {training.max_updates:,} updates of {training.budget:,} "
        "positions."
    )


def rates_in_words(experiment: Experiment) -> list[str]:
    rates = experiment.table.rates_at(experiment.size) if experiment.table else ()
    if not rates:
        return []
    if len(rates) == 1:
        return [f"The learning rate of every row rises to {rates[0]:g}."]
    tried = ", ".join(f"{rate:g}" for rate in rates)
    return [
        f"Every row was trained with its first seed at the learning rates {tried}, and has the one that was best on "
        "dev; the hours count all of them."
    ]


def rate_caveats(experiment: Experiment, results: Sequence[RunResult]) -> list[str]:
    """Which rows were best at an end of the learning rates that they tried: what lies beyond it is not known."""
    contests = contests_of(experiment, results)
    return [
        f"On {contest.title} {sentence}" if len(contests) > 1 else sentence
        for contest in contests
        for sentence in caveats_of(contest)
    ]


def caveats_of(contest: CorpusRows) -> list[str]:
    """The same of one corpus."""
    sentences = []
    for end, beyond, extreme in (("lowest", "lower", min), ("highest", "higher", max)):
        there = [
            entrant.label
            for entrant in contest.entrants
            if entrant.rates_tried > 1 and entrant.chosen.rate == extreme(tried.rate or 0.0 for tried in entrant.tried)
        ]
        if there:
            names = " and ".join(filter(None, [", ".join(there[:-1]), there[-1]]))
            were = "was" if len(there) == 1 else "were"
            sentences.append(f"{names} {were} best at the {end} rate tried, so a {beyond} one may be better still.")
    return sentences


def draw(contest: CorpusRows, file: Path) -> Path | None:
    """How well each row did on dev at each rate, by its first seed; None if no row was trained at several."""
    curves = {entrant.label: _curve(entrant) for entrant in contest.entrants if entrant.rates_tried > 1}
    return save(partial(_figure, curves, contest.title), file) if curves else None


def _curve(entrant: Entrant) -> dict[float, dict[str, float]]:
    firsts = {tried.rate: tried.runs[0] for tried in entrant.tried}
    return {
        rate: {**run.measured, **Run(run.folder).metrics()[-1].measures}
        for rate, run in firsts.items()
        if rate is not None and run.is_done
    }


def _figure(curves: dict[str, dict[float, dict[str, float]]], title: str) -> Figure:
    figure, axes = plt.subplots(1, len(_MEASURES), figsize=(7.4, 3.1), layout="constrained")
    for axis, (label, measure) in zip(axes, _MEASURES.items(), strict=True):
        for number, (row, curve) in enumerate(curves.items()):
            scores = [measured[measure] for measured in curve.values()]
            axis.plot(list(curve), scores, label=row, markersize=5, **look(number))
        rates = sorted({rate for curve in curves.values() for rate in curve})
        axis.set(xscale="log", xlabel="highest learning rate", ylabel=label)
        axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axis.minorticks_off()
    axes[0].set_ylim(bottom=0)
    figure.suptitle(f"{title}, first seed", fontsize=9)
    return legend_below(figure, columns=3)
