"""From collected runs to what is shown: figures and tables, each with a sentence of how to read it."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from qknorm.experiments.report import words
from qknorm.experiments.report.attention import Viewer, viewer_of
from qknorm.experiments.report.charts import Chart, Interval, Line, Point, interval_chart, line_chart
from qknorm.experiments.report.collect import Collection, Corpus, Diagnosis, Dropped, LanguageRun, SweepRuns, Validation
from qknorm.experiments.report.contests import Contest, System, contests_of, systems_of
from qknorm.experiments.report.examples import Examples, examples_of
from qknorm.experiments.sweep.figures import draw
from qknorm.experiments.sweep.statistics import analyse
from qknorm.experiments.sweep.summary import Table, sentences, tables, verdict
from qknorm.runs.recipe import Part


@dataclass(frozen=True)
class Figure:
    title: str
    how_to_read: str
    chart: Chart


@dataclass(frozen=True)
class Group:
    """Figures that belong together: those of one system, or of one text."""

    name: str
    note: str
    figures: list[Figure]


@dataclass(frozen=True)
class ScoreTable:
    contest: Contest
    figure: Figure
    verdicts: list[str]


@dataclass(frozen=True)
class Cleaning:
    """A language pair of a corpus: what was dropped, why, and some examples."""

    languages: str
    read: int
    kept: int
    reasons: list[tuple[str, int, str, list[Dropped]]]


@dataclass(frozen=True)
class CorpusSummary:
    used_by: str
    pieces: int
    pairs: list[Cleaning]


@dataclass(frozen=True)
class Translators:
    systems: list[System]
    lead: list[str]
    scores: list[ScoreTable]
    curves: list[Group]
    differences: list[tuple[str, list[str]]]
    recipes: list[tuple[str, str]]
    examples: list[tuple[str, list[Examples]]]
    viewer: Viewer
    scales: list[Group]
    corpora: list[CorpusSummary]

    @property
    def several_seeds(self) -> bool:
        return any(len(system.runs) > 1 for system in self.systems)


@dataclass(frozen=True)
class LanguageModels:
    lead: list[str]
    runs: list[tuple[LanguageRun, str]]
    """Each with its attention in words."""
    curves: list[Group]
    diagnoses: list[Group]


@dataclass(frozen=True)
class Picture:
    caption: str
    data: str
    """A data: address."""


@dataclass(frozen=True)
class SweepSection:
    name: str
    state: str
    verdict: list[str]
    sentences: list[str]
    pictures: list[tuple[str, list[Picture]]]
    tables: list[Table]


@dataclass(frozen=True)
class Report:
    """Everything on the page."""

    folder: str
    title: str
    translators: Translators | None
    language_models: LanguageModels | None
    sweeps: list[SweepSection]


def report_on(found: Collection) -> Report:
    systems = systems_of(found.translators)
    names = [system.name for system in systems]
    names += [run.name for run in found.language_models] + [sweep.name for sweep in found.sweeps]
    return Report(
        found.name,
        words.heading(names, found.name),
        _translators(systems) if systems else None,
        _language_models(found.language_models) if found.language_models else None,
        [_sweep(sweep) for sweep in found.sweeps],
    )


# Translators.


def _translators(systems: list[System]) -> Translators:
    contests = contests_of(systems)
    return Translators(
        systems,
        words.about_translators(systems, contests),
        [_scores(contest) for contest in contests],
        _learning(systems),
        _differences(systems),
        [(system.name, _as_yaml(system.first.recipe)) for system in systems],
        [(contest.title, examples_of(contest)) for contest in contests],
        viewer_of(contests),
        [_scale_group(system) for system in systems],
        _corpora(systems),
    )


def _scores(contest: Contest) -> ScoreTable:
    intervals = [
        Interval(entry.system.name, row.low, row.bleu, row.high, entry.system.number)
        for entry in contest.entries
        for row in [entry.compared]
    ]
    figure = Figure(
        "BLEU on the test set",
        "Each mark is a score, further right is better; the bar holds what the score might have been with 95 % "
        "certainty, had other sentences been tested.",
        interval_chart(intervals, "BLEU", "BLEU on the test set with 95 % intervals"),
    )
    return ScoreTable(contest, figure, words.verdicts(contest))


def _learning(systems: Sequence[System]) -> list[Group]:
    """One group for each origin of the text: dev scores of different sets have nothing to do with each other."""
    by_origin: dict[str, list[System]] = {}
    for system in systems:
        pairs = system.first.recipe.data.all_pairs
        origin = ", ".join(pair.corpus or f"{pair.source} and {pair.target}" for pair in pairs)
        by_origin.setdefault(origin, []).append(system)
    several = len(by_origin) > 1
    return [
        Group(
            origin if several else "",
            "",
            [
                *_curves(
                    "Score while learning",
                    "Quality on the dev set (sentences that are not learned from) after this many updates of the "
                    "model: higher is better, and a curve that still rises at its end could have gone on.",
                    learned, "dev BLEU", lambda each: each.dev_bleu,
                ),
                *_curves(
                    "Loss while learning",
                    "How surprised the model is by the right translation of the dev set, per piece of a word: lower is "
                    "better, and a curve that turns upwards means learning by heart.",
                    learned, "dev loss", lambda each: each.dev_loss,
                ),
            ],
        )
        for origin, learned in by_origin.items()
    ]  # fmt: skip


def _curves(
    title: str, how_to_read: str, systems: Sequence[System], y_name: str, value: Callable[[Validation], float | None]
) -> list[Figure]:
    lines = [
        Line(system.name, _course(run.validations, value), system.number) for system in systems for run in system.runs
    ]
    return _figure(title, how_to_read, lines, y_name)


def _figure(title: str, how_to_read: str, lines: Sequence[Line], y_name: str) -> list[Figure]:
    """The figure, or nothing where there is nothing to draw."""
    chart = line_chart(lines, "update", y_name, title)
    return [] if chart is None else [Figure(title, how_to_read, chart)]


def _course(validations: Sequence[Validation], value: Callable[[Validation], float | None]) -> list[Point]:
    return [(float(each.step), found) for each in validations if (found := value(each)) is not None]


_KINDS = {
    r"encoder\.\d+\.attention": ("Encoder", "the source looks at itself"),
    r"decoder\.\d+\.attention": ("Decoder", "the translation looks at what it has said"),
    r"decoder\.\d+\.source_attention": ("Cross", "the translation looks at the source"),
}


def _scale_group(system: System) -> Group:
    run = system.first
    if run.recipe.model.attention != "lp":
        return Group(system.name, f"has no g: its attention is that of {words.attention(run.recipe.model)}.", [])
    if not any(each.scales for each in run.validations):
        return Group(system.name, "has learned no g so far.", [])
    figures = []
    for pattern, (kind, meaning) in _KINDS.items():
        lines = scale_lines(run.validations, pattern, run.scale_start)
        how = f"How sharply {meaning}: a curve that falls means that a layer came to look at more pieces at once."
        figures += _figure(kind, how, lines, "g")
    return Group(system.name, "", figures)


def scale_lines(validations: Sequence[Validation], pattern: str, start: float | None) -> list[Line]:
    """g of each layer whose name fits, from its start on; where every head has its own, their mean."""
    names = dict.fromkeys(name for each in validations for name in each.scales if re.fullmatch(pattern, name))
    lines = []
    for layer, name in enumerate(names):
        course = [(float(each.step), _mean(each.scales[name])) for each in validations if name in each.scales]
        lines.append(Line(f"layer {layer + 1}", [(0.0, start), *course] if start is not None else course, layer))
    return lines


def _mean(value: float | list[float]) -> float:
    return fmean(value) if isinstance(value, list) else value


def _differences(systems: Sequence[System]) -> list[tuple[str, list[str]]]:
    """The keys in which the recipes differ, with each system's value."""
    flat = [_flat(system.first.recipe) for system in systems]
    keys = dict.fromkeys(key for recipe in flat for key in recipe)
    rows = [
        (key, [str(recipe.get(key, "")) for recipe in flat]) for key in keys if key not in ("name", "training.seed")
    ]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _flat(recipe: Part) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part, value in recipe.model_dump(mode="json").items():
        found |= {f"{part}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {part: value}
    return found


def _as_yaml(recipe: Part) -> str:
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _corpora(systems: Sequence[System]) -> list[CorpusSummary]:
    """Each different corpus once."""
    found: dict[str, list[System]] = {}
    for system in systems:
        languages = [pair.languages for pair in system.first.recipe.data.all_pairs]
        found.setdefault(f"{languages} {system.first.corpus.model_dump_json()}", []).append(system)
    return [_corpus_summary(users) for users in found.values()]


def _corpus_summary(users: Sequence[System]) -> CorpusSummary:
    run = users[0].first
    corpus: Corpus = run.corpus
    pairs = []
    for pair, about, examples in zip(run.recipe.data.all_pairs, corpus.pairs, run.dropped, strict=True):
        reasons = [
            (reason, count, words.REASONS.get(reason, ""), [each for each in examples if each.reason == reason])
            for reason, count in sorted(about.dropped.items(), key=lambda item: (-item[1], item[0]))
        ]
        pairs.append(Cleaning(" → ".join(pair.languages), about.read, about.kept, reasons))
    return CorpusSummary(", ".join(system.name for system in users), corpus.pieces, pairs)


# Language models.


def _language_models(runs: list[LanguageRun]) -> LanguageModels:
    texts: dict[str, list[tuple[int, LanguageRun]]] = {}
    for number, run in enumerate(runs):
        texts.setdefault(run.text.sha256, []).append((number, run))
    were = "was" if len(runs) == 1 else "were"
    characters = " and ".join(f"{same[0][1].text.characters:,}" for same in texts.values())
    lead = [f"{words.counted(len(runs), 'language model')} {were} trained on a text of {characters} characters."]
    curves = []
    for same in texts.values():
        lines = [Line(run.name, _course(run.validations, lambda each: each.val_loss), number) for number, run in same]
        how = (
            "How surprised a model is by the next character of a text it has not learned from (in nats): lower is "
            "better, and a curve that turns upwards means learning by heart."
        )
        shown = f"a text of {same[0][1].text.characters:,} characters" if len(texts) > 1 else ""
        curves.append(Group(shown, "", _figure("Validation loss", how, lines, "validation loss")))
    return LanguageModels(
        [*lead, *(words.about_best([run for _, run in same]) for same in texts.values())],
        [(run, words.attention(run.recipe.model)) for run in runs],
        curves,
        [Group(run.name, "" if run.validations else "has no validation yet.", _diagnosis(run)) for run in runs],
    )


def _diagnosis(run: LanguageRun) -> list[Figure]:
    """g, and what the attention of each layer looks like, mean over its heads."""
    validations = run.validations

    def lines(value: Callable[[Diagnosis], float | None]) -> list[Line]:
        return [
            Line(f"layer {layer + 1}", _course(validations, _of_layer(layer, value)), layer)
            for layer in range(max((len(each.attention) for each in validations), default=0))
        ]

    return [
        *_figure(
            "g of each layer",
            "The learned factor that decides how sharply a layer looks: larger means sharper.",
            scale_lines(validations, ".*", None), "g",
        ),
        *_figure(
            "How spread out attention is",
            "Entropy of the weights: 1 means that all characters before are looked at alike, 0 that a single one is.",
            lines(lambda layer: fmean(layer.entropy)), "entropy / maximum",
        ),
        *_figure(
            "How much of it is saturated",
            "The share of positions that give more than 99 % of their weight to one character: there, nothing is "
            "learned about the others.",
            lines(lambda layer: fmean(layer.saturated)), "share of rows",
        ),
        *_figure(
            "How much of the range is used",
            "The largest product of a query and a key beside the bound that normalisation sets: at 1 a layer cannot be "
            "sharper, whatever it would like.",
            lines(_use_of_bound), "largest / bound",
        ),
    ]  # fmt: skip


def _of_layer(number: int, value: Callable[[Diagnosis], float | None]) -> Callable[[Validation], float | None]:
    return lambda each: value(each.attention[number]) if number < len(each.attention) else None


def _use_of_bound(layer: Diagnosis) -> float | None:
    if layer.bound is None:
        return None
    return fmean(
        logit / bound if bound else 0.0 for logit, bound in zip(layer.largest_logit, layer.bound, strict=False)
    )


# Sweeps.

_CAPTIONS = {
    "1": "Validation loss while learning, one curve for each p, mean over the folds (left), and how far each is from "
    "p = 2 (right; below the line is better).",
    "2": "Training time for each p: the box holds the middle half of the runs, the line is the median, the diamond the "
    "mean.",
    "3": "The same curves for every fold by itself: a difference that means something is there in most of them.",
    "4": "g (here α) of each layer relative to where it started: above 1 attention became sharper.",
    "5": "How spread out attention is, how much of it is saturated, and how much of its bound it uses.",
}


def _sweep(sweep: SweepRuns) -> SweepSection:
    """The statistics and figures of the runs as they are now, so that those of a sweep under way agree."""
    done = [result for result in sweep.results if result.status == "done"]
    statistics = analyse(sweep.results)
    state = f"{len(done):,} of {len(sweep.results):,} runs are done."
    if statistics is None:
        return SweepSection(sweep.name, state, [], [], [], [])
    pictures: dict[str, list[Picture]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for path in draw(sweep.results, Path(scratch)):
            _, number, start = path.stem.split("-", 2)
            content = base64.b64encode(path.with_suffix(".svg").read_bytes()).decode()
            pictures.setdefault(start, []).append(Picture(_CAPTIONS[number], f"data:image/svg+xml;base64,{content}"))
    answer = [f"The answer: {sentence.removeprefix('So ')}" for sentence in verdict(statistics)]
    return SweepSection(sweep.name, state, answer, sentences(statistics), list(pictures.items()), tables(statistics))
