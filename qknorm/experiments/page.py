"""What an experiment says, in words and tables, and every form in which somebody wants it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qknorm.data.textfiles import replacing
from qknorm.experiments import formats
from qknorm.experiments.citations import bibliography, source
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.formats import Table
from qknorm.experiments.recipe import About
from qknorm.experiments.results import RunResult
from qknorm.experiments.tuning import planned_for, rates_in_words
from qknorm.tasks.table import TASKS


@dataclass(frozen=True)
class Picture:
    """A figure that was drawn."""

    path: Path
    """Of the PNG; the SVG and the PDF lie beside it."""
    heading: str
    """Of the figures that belong together."""
    caption: str


@dataclass(frozen=True)
class Answer:
    """Empty where nothing can be said yet."""

    sentences: list[str] = field(default_factory=list)
    verdict: list[str] | None = None
    """The shortest answer, where it is a part of the sentences."""
    tables: list[Table] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    """For the JSON."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """The tables' numbers as they are, for the CSV."""
    setting: list[str] = field(default_factory=list)
    """How it was measured."""
    caveats: list[str] = field(default_factory=list)
    """What is said against the runs themselves."""
    notes: list[str] = field(default_factory=list)
    """What its statistics say, and what not."""
    draw: Callable[[Path], list[Picture]] = lambda _folder: []
    """Its figures, into a folder."""


def setting(experiment: Experiment) -> list[str]:
    """What was shrunk, and whether every row has its own learning rate."""
    return [*filter(None, [experiment.about.shrunk]), *rates_in_words(experiment)]


def write(
    experiment: Experiment, results: Sequence[RunResult], answer: Answer, pictures: Sequence[Picture], folder: Path
) -> None:
    """Keep an answer beside its runs in every form."""
    path = experiment.page(folder)
    plans = [*filter(None, (planned_for(experiment, corpus, folder) for corpus in experiment.corpora))]
    how = [*setting(experiment), *answer.setting, *plans]
    shown = {os.path.relpath(picture.path, path.parent): picture.caption for picture in pictures}
    texts = {
        path: page(experiment.about, answer, shown, how, [*answer.caveats, *answer.notes, *_about_size(experiment)]),
        experiment.numbers(folder): as_json(experiment, results, answer),
    }
    if answer.tables:
        texts[path.with_suffix(".csv")] = formats.as_csv(answer.records)
        texts[path.with_suffix(".tex")] = formats.as_latex(
            experiment.about.title, answer.tables, [*how, *answer.caveats]
        )
    if experiment.about.paper is not None:
        texts[path.with_name("references.bib")] = bibliography()
    if experiment.table is None:
        texts[folder / "results.csv"] = results_as_csv(results)
    for file, text in texts.items():
        with replacing(file) as opened:
            opened.write(text.encode())


def _about_size(experiment: Experiment) -> list[str]:
    is_beside_paper = experiment.table is not None and bool(experiment.table.pairs)
    return ["A difference to the paper is one between sizes, too."] * (is_beside_paper and experiment.size != "paper")


def page(about: About, answer: Answer, pictures: Mapping[str, str], how: Sequence[str], against: Sequence[str]) -> str:
    """Markdown that says what was asked, how it was tried, what came out, and what that does not say."""
    parts = [
        f"# {about.title}" if about.title else "",
        _told("Question", [about.question]),
        _told("Setting", how),
        _told("Result", answer.sentences),
        formats.as_markdown(answer.tables),
        *(f"![{caption}]({picture})" for picture, caption in pictures.items()),
        _told("Caveat", [about.caveat, *against]),
        source(about.paper),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _told(heading: str, sentences: Sequence[str]) -> str:
    text = " ".join(filter(None, sentences))
    return f"**{heading}.** {text}" if text else ""


def results_as_csv(results: Sequence[RunResult]) -> str:
    """A row for each run, what was measured last."""
    rows = [result.row() for result in results]
    measured = (*TASKS[results[0].task].measured, "status")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return formats.as_csv(rows, sorted(columns, key=lambda key: key in measured))


def as_json(experiment: Experiment, results: Sequence[RunResult], answer: Answer) -> str:
    """Everything; `plan` says which runs stand for which row, so that a report can compare them in the same way."""
    about = experiment.about
    said = {key: getattr(about, key) for key in ("title", "question", "shrunk", "caveat", "shows", "paper")}
    everything = {
        "experiment": experiment.name,
        "size": experiment.size,
        **{key: value for key, value in said.items() if value},
        "runs": [{"folder": str(run.folder), "done": run.is_done} | run.row() for run in results],
        "failed": [run.name for run in results if run.status == "failed"],
        "rows": answer.records,
        "table": [dict(zip(table.columns, row, strict=True)) for table in answer.tables[:1] for row in table.rows],
        **answer.numbers,
        **({"paragraph": " ".join(answer.sentences)} if answer.sentences else {}),
        "plan": experiment.content(),
    }
    return json.dumps(everything, indent=1, ensure_ascii=False)
