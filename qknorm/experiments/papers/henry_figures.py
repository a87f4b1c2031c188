"""Figures 1 and 2 of the first paper: where the heads of an encoder layer look; how diffuse that is, also over time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from qknorm.attention.watch import normalized_entropy
from qknorm.data.textfiles import read_lines
from qknorm.decoding.translator import Explanation, Translator
from qknorm.experiments.figures import STYLE, look, save
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


class Drawn(NamedTuple):
    """The figures of some systems, and a table of how diffuse they are."""

    lines: list[list[str]]
    """Of each system: its label, the mean entropy of all heads, the lowest, the highest, and over how many runs."""
    captions: dict[Path, str]
    """Of each figure, by its PNG."""


def draw(runs: Mapping[str, Sequence[Path]], files: Callable[[str], Path]) -> Drawn:
    """Draw the figures of some systems, the finished runs of each by its label; heat maps are of the first run.

    files: where a figure of this name is to be, without its ending.
    """
    sources = list(read_lines(Run(next(iter(runs.values()))[0]).test_set().source))
    translators = {label: [Translator.load(run) for run in own] for label, own in runs.items()}
    sentence = _typical(sources, next(iter(translators.values()))[0])
    spread = {
        label: torch.stack([entropies(translator, sources) for translator in own]) for label, own in translators.items()
    }
    courses = {kind: {label: course(own, kind) for label, own in runs.items()} for kind in KINDS}
    captions = {}
    with mpl.rc_context(STYLE):
        if all(len(found.updates) > 1 for by_label in courses.values() for found in by_label.values()):
            captions[save(over_training(courses), files("entropy-over-training"))] = "Entropy of heads over training"
        for number, (label, (first, *_)) in enumerate(translators.items(), 1):
            drawn = save(heads(first.explain(sentence), label), files(f"figure-{number}"))
            captions[drawn] = f"Where heads of the encoder look: {label}"
        spreads = diffuseness({label: own[0] for label, own in spread.items()})
        captions[save(spreads, files("entropy"))] = "Entropy of the heads of each encoder layer, first seed"
    lines = [
        [label, *(f"{float(value):.3f}" for value in (own.mean(), own.min(), own.max())), str(len(own))]
        for label, own in spread.items()
    ]
    return Drawn(lines, captions)


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
    updates = [update for update in found[0] if all(update in own for own in found)]
    heads = [torch.cat([torch.tensor(own[update]) for own in found], dim=1) for update in updates]
    return Course(updates, torch.stack(heads) if heads else torch.empty(0))


def _course(run: Path, kind: str) -> dict[int, list[list[float]]]:
    """The heads of each layer by the update."""
    return {
        line.step: [heads for name, heads in line.entropy.items() if re.fullmatch(KINDS[kind], name)]
        for line in Run(run).metrics()
        if line.entropy
    }


def first_crossing(one: Course, other: Course) -> int | None:
    """From which update on the heads of one system are in the mean sharper than those of another; None if never."""
    common = [update for update in one.updates if update in other.updates]
    sharper = [_mean_at(one, update) < _mean_at(other, update) for update in common]
    last = max((place for place, is_sharper in enumerate(sharper) if not is_sharper), default=-1) + 1
    return common[last] if last < len(common) else None


def _mean_at(found: Course, update: int) -> float:
    return float(found.entropies[found.updates.index(update)].mean())


def over_training(courses: Mapping[str, Mapping[str, Course]]) -> Figure:
    """A row for each kind of attention, a panel in it for each system: every head by its layer, and the mean of all."""
    systems = list(next(iter(courses.values())))
    most_layers = max(found.entropies.shape[1] for by_label in courses.values() for found in by_label.values())
    shades = mpl.colormaps["viridis"](torch.linspace(0.0, 0.92, most_layers).numpy())
    figure, axes = plt.subplots(
        len(courses),
        len(systems),
        figsize=(3.6 * len(systems), 2.4 * len(courses) + 0.6),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, (kind, by_label) in zip(axes, courses.items(), strict=True):
        row[0].set_ylabel(f"{kind}\nentropy (0: one word, 1: all alike)")
        for axis, found in zip(row, by_label.values(), strict=True):
            _plot_course(axis, found, shades)
    for axis, label in zip(axes[0], systems, strict=True):
        axis.set_title(label)
    for axis in axes[-1]:
        axis.set_xlabel("update")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _plot_course(axis: Axes, found: Course, shades: Sequence[Any]) -> None:
    """Of each layer in a colour of its own, the same for all kinds and systems."""
    for layer in range(found.entropies.shape[1]):
        lines = axis.plot(found.updates, found.entropies[:, layer].numpy(), color=shades[layer], linewidth=0.9)
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
