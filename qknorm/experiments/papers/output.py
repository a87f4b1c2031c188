"""A table in every form in which somebody wants it: a page in Markdown, CSV, LaTeX (booktabs) and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from qknorm.evaluation import wording
from qknorm.experiments import formats
from qknorm.experiments.cells import is_done
from qknorm.experiments.citations import bibliography, source
from qknorm.experiments.papers.plan import Experiment, Plan
from qknorm.experiments.papers.results import Result
from qknorm.experiments.papers.sizes import shrunk
from qknorm.experiments.papers.views import Table


def write(plan: Plan, table: Table, folder: Path) -> Path:
    """Keep a table beside its runs in every form; returns the page."""
    experiment = plan.experiment
    path = folder / "tables" / f"{file_name(experiment)}.md"
    runs = [{"folder": str(folder / cell.name), "done": is_done(folder / cell.name)} for cell in plan.runs(folder)]
    in_every_form = {
        path: page(experiment, table),
        path.with_suffix(".csv"): formats.as_csv(table.records),
        path.with_suffix(".tex"): as_latex(experiment, table),
        path.with_suffix(".json"): as_json(experiment, table, runs),
        path.with_name("references.bib"): bibliography(),
    }
    formats.write_texts(in_every_form)
    return path


def file_name(experiment: Experiment) -> str:
    """The experiment and, where there is one, its corpus."""
    corpora = [contest.corpus for contest in experiment.contests]
    return "_".join([experiment.name, *corpora[: len(corpora) == 1]])


def page(experiment: Experiment, table: Table) -> str:
    """Markdown that says what was asked, how it was tried, what came out, and what that does not say."""
    about = experiment.table
    parts = [
        f"# {about.title}",
        f"**Question.** {about.question}" if about.question else "",
        f"**Setting.** {' '.join([*setting(experiment), *table.plans])}",
        formats.as_markdown([table.columns, ["---"] * len(table.columns), *table.lines]),
        *(f"**Result{_on(result, table)}.** {' '.join(result.sentences)}" for result in table.results),
        f"**Result.** {' '.join(table.sentences)}" if table.sentences else "",
        *(
            f"![{caption}](../figures/{picture.parent.name}/{picture.name})"
            for picture, caption in table.captions.items()
        ),
        f"**Caveat.** {' '.join(caveats(experiment, table))}",
        source(experiment.table.paper),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def setting(experiment: Experiment) -> list[str]:
    """What was shrunk, how it was scored, and whether every row has its own learning rate."""
    sentences = [shrunk(experiment.size, experiment.minutes)]
    if experiment.table.shows == "bleu":
        kinds = {experiment.as_tokens(contest) for contest in experiment.contests}
        sentences += [f"Test BLEU is {how_scored(as_tokens)}." for as_tokens in sorted(kinds)]
    rates = experiment.table.rates_at(experiment.size)
    if len(rates) == 1:
        sentences.append(f"The learning rate of every row rises to {rates[0]:g}.")
    elif rates:
        tried = ", ".join(f"{rate:g}" for rate in rates)
        sentences.append(
            f"Every row was trained with its first seed at the learning rates {tried}, and has the one that was best "
            "on dev; the hours count all of them."
        )
    return sentences


def how_scored(as_tokens: bool) -> str:
    return "that of Moses' tokens (multi-bleu)" if as_tokens else "SacreBLEU of the text"


def caveats(experiment: Experiment, table: Table) -> list[str]:
    """What the table itself says against it, what its runs do, and what its statistics do not say."""
    sentences = [*filter(None, [experiment.table.caveat]), *table.caveats]
    if seeds := [row.seeds for result in table.results for row in result.compared]:
        sentences.append(f"A 95 % interval is {wording.about_interval(min(seeds))}")
    if experiment.size != "paper" and experiment.table.pairs:
        sentences.append("A difference to the paper is one between sizes, too.")
    return sentences


def _on(result: Result, table: Table) -> str:
    return f" on {result.contest.title}" if len(table.results) > 1 else ""


def as_latex(experiment: Experiment, table: Table) -> str:
    """A floating table whose caption says what was shrunk."""
    title = experiment.table.title
    caption = " ".join(
        [title if title[-1:] in ".?!" else f"{title}.", *setting(experiment), *table.plans, *table.caveats]
    )
    return formats.as_latex(caption, table.columns, table.lines, text_columns=2)


def as_json(experiment: Experiment, table: Table, runs: Sequence[dict[str, object]]) -> str:
    """Everything; `plan` says which runs stand for which row, so that a report can compare them in the same way."""
    about = {
        "experiment": experiment.name,
        "size": experiment.size,
        "shrunk": shrunk(experiment.size, experiment.minutes),
        "rows": table.records if experiment.table.shows == "bleu" else [],
        "table": [dict(zip(table.columns, line, strict=True)) for line in table.lines],
        "runs": runs,
        "plan": experiment.model_dump(mode="json"),
    }
    return json.dumps(about, indent=1, ensure_ascii=False)
