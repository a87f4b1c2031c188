"""Language models: how well they predict, and what their attention looks like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from qknorm.experiments.report import words
from qknorm.experiments.report.charts import Curve
from qknorm.experiments.report.collect import TrainedLanguageModel
from qknorm.experiments.report.contests import Material
from qknorm.experiments.report.section import Figure, Group, Section, course, figures
from qknorm.experiments.report.sections.sharpness import scale_curves
from qknorm.runs.contents import LayerAttention, ValidationLine


@dataclass(frozen=True)
class LanguageSection(Section):
    sentences: list[str]
    runs: list[tuple[TrainedLanguageModel, str]]
    """Each with its attention in words."""
    curves: list[Group]
    diagnoses: list[Group]
    title = "Language models"

    def first_sentences(self) -> list[str]:
        return self.sentences

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        runs = material.collection.language_models
        if not runs:
            return []
        texts = _by_text(runs)
        return [
            cls(
                _lead(texts),
                [(run, words.attention(run.recipe.model)) for run in runs],
                [_curves(same, several=len(texts) > 1) for same in texts],
                [
                    Group(run.name, "" if run.validations else "has no validation yet.", _diagnosis(run.validations))
                    for run in runs
                ],
            )
        ]


def _by_text(runs: Sequence[TrainedLanguageModel]) -> list[list[tuple[int, TrainedLanguageModel]]]:
    """Runs with their numbers; those of one text together."""
    by_text: dict[str, list[tuple[int, TrainedLanguageModel]]] = {}
    for number, run in enumerate(runs):
        by_text.setdefault(run.text.sha256, []).append((number, run))
    return list(by_text.values())


def _lead(texts: Sequence[Sequence[tuple[int, TrainedLanguageModel]]]) -> list[str]:
    count = sum(map(len, texts))
    were = "was" if count == 1 else "were"
    characters = " and ".join(f"{same[0][1].text.characters:,}" for same in texts)
    first = f"{words.counted(count, 'language model')} {were} trained on a text of {characters} characters."
    return [first, *(_about_best([run for _, run in same]) for same in texts)]


def _about_best(runs: Sequence[TrainedLanguageModel]) -> str:
    """One sentence on how well the best of several language models predicts."""
    run = min(runs, key=lambda run: math.inf if run.best_loss is None else run.best_loss)
    if run.best_loss is None:
        return "There is no validation yet."
    what = "a validation loss of" if len(runs) == 1 else "the lowest validation loss,"
    choices = math.exp(run.best_loss) if run.best_loss < 20 else math.inf
    return (
        f"{run.name} ({words.attention(run.recipe.model)}) reached {what} {run.best_loss:.3f}: it is as unsure "
        f"of the next character as if it had to choose among {choices:.1f} equally likely ones."
    )


def _curves(same: Sequence[tuple[int, TrainedLanguageModel]], several: bool) -> Group:
    """The validation losses of the models of one text."""
    curves = [Curve(run.name, course(run.validations, lambda line: line.val_loss), number) for number, run in same]
    how = (
        "How surprised a model is by the next character of a text it has not learned from (in nats): lower is "
        "better, and a curve that turns upwards means learning by heart."
    )
    title = f"a text of {same[0][1].text.characters:,} characters" if several else ""
    return Group(title, "", figures("Validation loss", how, curves, "validation loss"))


# What the attention of a layer looks like, mean over its heads: title, how to read it, the axis, the number.
_MEASURES: tuple[tuple[str, str, str, Callable[[LayerAttention], float | None]], ...] = (
    (
        "How spread out attention is",
        "Entropy of the weights: 1 means that all characters before are looked at alike, 0 that a single one is.",
        "entropy / maximum",
        lambda layer: fmean(layer.entropy),
    ),
    (
        "How much of it is saturated",
        "The share of positions that give more than 99 % of their weight to one character: there, nothing is "
        "learned about the others.",
        "share of rows",
        lambda layer: fmean(layer.saturated),
    ),
    (
        "How much of the range is used",
        "The largest product of a query and a key beside the bound that normalisation sets: at 1 a layer cannot be "
        "sharper, whatever it would like.",
        "largest / bound",
        lambda layer: None if layer.use_of_bound is None else fmean(layer.use_of_bound),
    ),
)


def _diagnosis(validations: Sequence[ValidationLine]) -> list[Figure]:
    """g, and what the attention of each layer looks like."""
    how = "The learned factor that decides how sharply a layer looks: larger means sharper."
    shown = figures("g of each layer", how, scale_curves(validations, ".*", None), "g")
    layers = range(max((len(line.attention) for line in validations), default=0))
    for title, how_to_read, y_name, value in _MEASURES:
        curves = [Curve(f"layer {layer + 1}", course(validations, _of_layer(layer, value)), layer) for layer in layers]
        shown += figures(title, how_to_read, curves, y_name)
    return shown


def _of_layer(number: int, value: Callable[[LayerAttention], float | None]) -> Callable[[ValidationLine], float | None]:
    return lambda line: value(line.attention[number]) if number < len(line.attention) else None
