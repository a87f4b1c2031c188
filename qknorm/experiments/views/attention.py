"""Figures 1 and 2 of the first paper: where the heads of an encoder layer look; how diffuse that is, also over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from qknorm.attention.watch import normalized_entropy
from qknorm.data.textfiles import read_lines
from qknorm.decoding.translator import Explanation, Translator
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.figures import legend_below, look, panels, save, shades
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Answer, Picture
from qknorm.experiments.results import CorpusRows, RunResult, contests_of
from qknorm.runs.run import Run

KINDS = {
    "encoder": r"encoder\.\d+\.attention",
    "decoder": r"decoder\.\d+\.attention",
    "decoder, at the source": r"decoder\.\d+\.source_attention",
}
"""Kinds of attention: the names of their layers in metrics.jsonl."""
HEADS = 4
_SENTENCES = 100  # of the test set, for the entropies
_MOST_PIECES = 16  # of the sentence that is drawn
_COLUMNS = ["corpus", "system", "mean entropy", "lowest head", "highest head", "seeds"]


@dataclass(frozen=True)
class Looks:
    """How the systems of one corpus look at sentences: the translator of the first run of each by its label."""

    title: str
    sentence: str
    translators: dict[str, Translator]
    entropies: dict[str, Tensor]
    """Of each system (runs, layers, heads)."""
    courses: dict[str, dict[str, Course]]
    """By the kind of attention, then by system."""


def answer(experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    """How diffuse the heads of each system are where all systems are done, and whether and when one was sharper."""
    contests = contests_of(experiment, results)
    looks = {contest.corpus: _looks(contest) for contest in contests if len(contest.done) == len(contest.entrants)}
    rows = []
    for contest in contests:
        if contest.corpus in looks:
            rows += [[contest.title, *_numbers(*system)] for system in looks[contest.corpus].entropies.items()]
        else:
            rows += [[contest.title, entrant.label, "not run", "", "", ""] for entrant in contest.entrants]
    first = experiment.table.row(experiment.table.first).title if experiment.table else ""
    sentences = [sentence for contest in contests for sentence in _sharper(contest, first)]
    records = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    tables, draw = [Table("", "", _COLUMNS, rows, text_columns=2)], partial(_draw, experiment.name, looks)
    return Answer(sentences, tables=tables, records=records, draw=draw)


def _numbers(label: str, entropies: Tensor) -> list[str]:
    """The mean entropy of all heads, the lowest, the highest, and over how many runs."""
    values = (entropies.mean(), entropies.min(), entropies.max())
    return [label, *(f"{float(value):.3f}" for value in values), str(len(entropies))]


def _looks(contest: CorpusRows) -> Looks:
    folders = {label: [run.folder for run in runs] for label, runs in contest.done.items()}
    translators = {label: [Translator.load(run) for run in runs] for label, runs in folders.items()}
    firsts = {label: runs[0] for label, runs in translators.items()}
    sources = list(read_lines(Run(next(iter(folders.values()))[0]).test_set().source))
    return Looks(
        contest.title,
        _typical(sources, next(iter(firsts.values()))),
        firsts,
        {label: torch.stack([entropies(run, sources) for run in runs]) for label, runs in translators.items()},
        {kind: {label: course(runs, kind) for label, runs in folders.items()} for kind in KINDS},
    )


def _sharper(contest: CorpusRows, first: str) -> Iterator[str]:
    """Whether and when the reference was sharper than each system, in the mean of all heads of a kind."""
    for kind in KINDS:
        courses = {label: course([run.folder for run in runs], kind) for label, runs in contest.done.items()}
        watched = {label: found for label, found in courses.items() if found.updates}
        for label, found in watched.items():
            if first in watched and label != first:
                update = first_crossing(watched[first], found)
                when = "at the end" if update is None else f"from update {update:,} on"
                ends = [f"{float(system.entropies[-1].mean()):.2f}" for system in (watched[first], found)]
                yield (
                    f"On {contest.title}, {kind}: {first} {'was not' if update is None else 'was'} sharper than "
                    f"{label} {when}, in the mean of its heads (entropy {ends[0]} and {ends[1]} at the end)."
                )


def _draw(name: str, looks: Mapping[str, Looks], folder: Path) -> list[Picture]:
    """Heat maps are of the first run of each system."""
    return [
        Picture(save(figure, folder / corpus / f"{name}_{figure_name}"), of_corpus.title, caption)
        for corpus, of_corpus in looks.items()
        for figure_name, caption, figure in _figures(of_corpus)
    ]


def _figures(looks: Looks) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """The name of each, its caption, and what draws it."""
    if all(len(found.updates) > 1 for by_label in looks.courses.values() for found in by_label.values()):
        yield "entropy-over-training", "Entropy of heads over training", partial(over_training, looks.courses)
    for number, (label, translator) in enumerate(looks.translators.items(), 1):
        figure = partial(heads, translator.explain(looks.sentence), label)
        yield f"figure-{number}", f"Where heads of the encoder look: {label}", figure
    spreads = {label: values[0] for label, values in looks.entropies.items()}
    yield "entropy", "Entropy of the heads of each encoder layer, first seed", partial(diffuseness, spreads)


def _typical(sources: Sequence[str], translator: Translator) -> str:
    """The first sentence that is long enough to be interesting and short enough to be drawn."""
    for source in sources:
        if 10 <= len(translator.subwords.encode([source])[0]) <= _MOST_PIECES:
            return source
    return min(sources, key=len)


def heads(explanation: Explanation, label: str) -> Figure:
    """Heat maps of the first heads of the middle layer of the encoder."""
    layer = len(explanation.attention.encoder) // 2
    weights = explanation.attention.encoder[layer][:HEADS]
    pieces = explanation.source_pieces
    figure, axes = plt.subplots(2, 2, figsize=(8.6, 8.2), layout="constrained", squeeze=False)
    for head, axis in enumerate(axes.flat):
        if head >= len(weights):
            axis.set_visible(False)
            continue
        image = axis.imshow(weights[head].numpy(), cmap="cividis", vmin=0, vmax=1)
        axis.set_xticks(range(len(pieces)), pieces, rotation=90, fontsize=8)
        axis.set_yticks(range(len(pieces)), pieces, fontsize=8)
        axis.set_title(f"head {head + 1}, entropy {normalized_entropy(weights[head], len(pieces)).mean():.2f}")
        axis.tick_params(length=0)
    figure.colorbar(image, ax=axes, shrink=0.5, label="attention weight")
    figure.suptitle(f"{label}: encoder layer {layer + 1}, self-attention")
    return figure


def entropies(translator: Translator, sources: Sequence[str]) -> Tensor:
    """(layers, heads): the mean over sentences of the entropy of the encoder's attention, 0 one word, 1 all alike."""
    lengths = [len(pieces) for pieces in translator.subwords.encode(sources)]
    usable = [line for line, length in zip(sources, lengths, strict=True) if 3 <= length <= (translator.longest or 100)]
    # The encoder does not depend on the translation, so an empty one will do.
    maps = [translator.explain(line, "").attention.encoder for line in usable[:_SENTENCES]]
    return torch.stack([normalized_entropy(weights, weights.shape[-1]).mean(-1) for weights in maps]).mean(0)


class Course(NamedTuple):
    """How diffuse every head of a kind was at each validation of a system's runs."""

    updates: list[int]
    entropies: Tensor
    """(validations, layers, heads of all runs)"""


def course(runs: Sequence[Path], kind: str) -> Course:
    """On the dev set; empty if a run is of an earlier version, which did not watch its heads."""
    found = [_course(run, kind) for run in runs]
    updates = [update for update in found[0] if all(update in run for run in found)]
    heads = [torch.cat([torch.tensor(run[update]) for run in found], dim=1) for update in updates]
    return Course(updates, torch.stack(heads) if heads else torch.empty(0))


def _course(run: Path, kind: str) -> dict[int, list[list[float]]]:
    """The heads of each layer by the update."""
    return {
        line.step: [heads for name, heads in line.entropy.items() if re.fullmatch(KINDS[kind], name)]
        for line in Run(run).metrics()
        if line.entropy
    }


def first_crossing(found: Course, other: Course) -> int | None:
    """From which update on the heads of one system are in the mean sharper than those of another; None if never."""
    common = [update for update in found.updates if update in other.updates]
    sharper = [_mean_at(found, update) < _mean_at(other, update) for update in common]
    last = max((place for place, is_sharper in enumerate(sharper) if not is_sharper), default=-1) + 1
    return common[last] if last < len(common) else None


def _mean_at(found: Course, update: int) -> float:
    return float(found.entropies[found.updates.index(update)].mean())


def over_training(courses: Mapping[str, Mapping[str, Course]]) -> Figure:
    """A row for each kind of attention, a panel in it for each system: every head by its layer, and the mean of all."""
    systems = list(next(iter(courses.values())))
    kinds = [f"{kind}\nentropy (0: one word, 1: all alike)" for kind in courses]
    size = (3.6 * len(systems), 2.4 * len(kinds) + 0.6)
    figure, axes = panels(kinds, systems, "update", size)
    shown = [found for by_label in courses.values() for found in by_label.values()]
    colours = shades(max(found.entropies.shape[1] for found in shown))
    for axis, found in zip(axes.flat, shown, strict=True):
        _plot_course(axis, found, colours)
    return legend_below(figure)


def _plot_course(axis: Axes, found: Course, colours: Sequence[Any]) -> None:
    """Of each layer in a colour of its own, the same for all kinds and systems."""
    for layer in range(found.entropies.shape[1]):
        lines = axis.plot(found.updates, found.entropies[:, layer].numpy(), color=colours[layer], linewidth=0.9)
        lines[0].set_label(f"layer {layer + 1}")
    axis.plot(found.updates, found.entropies.mean((1, 2)).numpy(), color="black", linewidth=2, label="mean")
    axis.set_ylim(0, 1)


def diffuseness(spread: Mapping[str, Tensor]) -> Figure:
    """Every head of every layer as a point, systems side by side."""
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for place, (label, values) in enumerate(spread.items()):
        for layer, row in enumerate(values):
            x = [layer + 1 + (place - (len(spread) - 1) / 2) * 0.24] * len(row)
            legend = None if layer else label
            axis.plot(x, row.numpy(), linestyle="none", alpha=0.8, label=legend, **look(place))
    axis.set_xticks(range(1, len(next(iter(spread.values()))) + 1))
    axis.set_xlabel("encoder layer")
    axis.set_ylabel("entropy of attention\n(0: one word, 1: all alike)")
    axis.set_ylim(0, 1)
    axis.legend(loc="lower right")
    return figure
