"""`qknorm reproduce`: the first paper's tables with our numbers beside the published ones.

runs/reproduce-SIZE/  CORPUS/SYSTEM_seed-N/ (run folders)  tables/EXPERIMENT_CORPUS.{md,json}

Runs belong to a corpus, not to a table: what one table has trained, another finds done.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from qknorm.data import corpora
from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu, detokenized, moses_tokenized
from qknorm.evaluation.significance import Comparison, compare
from qknorm.experiments.cells import Cell, is_done, read_result
from qknorm.experiments.papers import henry_figures
from qknorm.experiments.papers.henry import (
    EXPERIMENTS,
    FULL,
    PAIRS,
    SHRUNK,
    STAND_IN,
    TABLE_1,
    TABLE_1_COLUMNS,
    Experiment,
    Size,
    System,
    settings,
)
from qknorm.experiments.sweep.statistics import holm
from qknorm.runs.recipe import Recipe, checked
from qknorm.runs.run import Run


@dataclass(frozen=True)
class Corpus:
    """What a table is computed on."""

    name: str
    data: Mapping[str, Any]
    """The keys of a recipe that say where its text is."""
    pair: str | None
    """The paper's language pair, if this is the corpus that the paper used."""

    @property
    def shown(self) -> str:
        return f"{self.pair.replace('-', '→')} ({self.name})" if self.pair else self.name


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment. One run may stand for several systems, where they come to the same."""

    name: str
    size: Size
    seeds: int
    corpora: list[Corpus]
    cells: dict[tuple[str, str, int], Cell]
    """By corpus, system and seed."""

    @property
    def experiment(self) -> Experiment:
        return EXPERIMENTS[self.name]

    @property
    def systems(self) -> tuple[System, ...]:
        return self.experiment.systems(self.size)

    @property
    def runs(self) -> list[Cell]:
        """Each once; those of one seed stand together, so that an unfinished experiment compares like with like."""
        ordered = sorted(self.cells.items(), key=lambda entry: entry[0][2])
        return list({cell.name: cell for _, cell in ordered}.values())

    def done(self, corpus: str, system: str, folder: Path) -> list[Path]:
        """The folders of the finished runs of a system."""
        cells = [self.cells[corpus, system, seed] for seed in range(1, self.seeds + 1)]
        return [folder / cell.name for cell in cells if is_done(folder / cell.name)]


def plan(name: str, size: Size, corpus: str | None, seeds: int) -> Plan:
    """Every run that an experiment needs, all of their recipes checked."""
    experiment = EXPERIMENTS[name]
    if corpus is not None:
        chosen = [find_corpus(corpus)]
    elif size == "paper":
        chosen = [find_corpus(PAIRS[pair]) for pair in experiment.pairs]
    else:
        chosen = [find_corpus(STAND_IN[size])]
    cells = {}
    for one in chosen:
        for seed in range(1, seeds + 1):
            names: dict[str, str] = {}  # of the runs, by what they do
            for system in (FULL, *experiment.systems(size)):
                recipe = _recipe(one, system, size, seed)
                run = names.setdefault(recipe.model_dump_json(), f"{one.name}/{system.name}_seed-{seed}")
                cells[one.name, system.name, seed] = Cell(run, {}, recipe.model_copy(update={"name": run}))
            if FULL not in experiment.systems(size):
                del cells[one.name, FULL.name, seed]
    return Plan(name, size, seeds, chosen, cells)


def find_corpus(name: str) -> Corpus:
    """A named corpus, a folder that holds one, or a folder with train, dev and test of any two languages."""
    folder = Path(name).resolve()
    known = {info.name for info in corpora.known() if info.languages}
    if Path(name).is_dir() and folder.name in known:
        corpora.get(folder.name, from_folder=folder)
        name = folder.name
    base = name.partition(":")[0]
    if base in known:
        pair = next((pair for pair, corpus in PAIRS.items() if corpus == name), None)
        scheme = "words" if base in PAIRS.values() else "raw"
        return Corpus(name.replace(":", "-"), {"corpus": name, "scheme": scheme}, pair)
    if not folder.is_dir():
        raise InputError(f"{name} is neither a parallel corpus (see: qknorm data list) nor a folder")
    codes = sorted(path.suffix[1:] for path in folder.glob("train.*"))
    if len(codes) != 2:
        raise InputError(f"{name} needs one train file in each of two languages, such as train.en and train.gl")
    if folder.name.endswith("-".join(reversed(codes))):
        codes.reverse()
    files = {split: [str(folder / f"{split}.{code}") for code in codes] for split in corpora.SPLITS}
    missing = next((path for both in files.values() for path in both if not Path(path).is_file()), None)
    if missing is not None:
        raise InputError(f"{name} has no {Path(missing).name}; it needs train, dev and test in {' and '.join(codes)}")
    source, target = files["train"]
    data = {"source": source, "target": target, "dev": files["dev"], "test": files["test"], "languages": codes}
    return Corpus(folder.name, data, None)


def _recipe(corpus: Corpus, system: System, size: Size, seed: int) -> Recipe:
    content: dict[str, Any] = settings(size, corpus.pair)
    content["data"] |= corpus.data
    content["training"]["seed"] = seed
    for changes in (system.changes, system.changes_at_paper_size if size == "paper" else {}):
        for part, keys in changes.items():
            content[part] = {**content.get(part, {}), **keys}
    return checked(Recipe, content, f"{system.label} on {corpus.name}")


# The tables.


@dataclass(frozen=True)
class Row:
    """A system on a corpus. Differences are to the reference system; None is what is not known or not run."""

    corpus: str
    system: str
    paper: float | None
    paper_difference: float | None = None
    ours: float | None = None
    ours_sd: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    """Holm-corrected, over the rows of a corpus."""
    ours_minus_paper: float | None = None
    """Only on the paper's own corpus."""
    seeds: int = 0


def rows(plan: Plan, folder: Path) -> list[Row]:
    """What the table of an experiment says, as far as its runs are done."""
    return [row for corpus in plan.corpora for row in _rows_of(plan, corpus, folder)]


def _rows_of(plan: Plan, corpus: Corpus, folder: Path) -> list[Row]:
    experiment = plan.experiment
    moses = experiment.moses and corpus.pair in (None, "en-vi")  # of the TED talks the paper scored text
    measured = _compared(plan, corpus, folder, moses)
    # A table of one pair says something about other corpora too; of several pairs, each speaks for itself.
    pair = experiment.pairs[0] if len(experiment.pairs) == 1 else corpus.pair
    published = {system.name: experiment.published.get((pair or "", system.name)) for system in plan.systems}
    reference = published[experiment.reference]
    found = []
    for system in plan.systems:
        paper = published[system.name]
        row = Row(corpus.shown, system.label, paper)
        if paper is not None and reference is not None and system.name != experiment.reference:
            row = replace(row, paper_difference=round(paper - reference, 2))
        if ours := measured.get(system.name):
            row = replace(
                row,
                ours=ours.bleu,
                ours_sd=ours.bleu_sd,
                difference=ours.difference,
                low=ours.difference_low,
                high=ours.difference_high,
                p_value=ours.p_value,
                seeds=ours.seeds,
                ours_minus_paper=ours.bleu - paper if paper is not None and pair == corpus.pair else None,
            )
        found.append(row)
    return found


def _compared(plan: Plan, corpus: Corpus, folder: Path, moses: bool) -> dict[str, Comparison]:
    """Every system of which runs are done, compared with the reference if that is among them."""
    runs = {system.name: plan.done(corpus.name, system.name, folder) for system in plan.systems}
    runs = {name: done for name, done in runs.items() if done}
    if not runs:
        return {}
    seeds = min(map(len, runs.values()))  # every system with as many
    lines = {name: [_lines(run, "hypotheses", moses) for run in done[:seeds]] for name, done in runs.items()}
    references = _lines(next(iter(runs.values()))[0], "references", moses)
    first = plan.experiment.reference
    if first not in lines or len(lines) == 1:
        return {name: _alone(name, [bleu(run, references, moses) for run in own]) for name, own in lines.items()}
    reference, *others = compare({first: lines.pop(first), **lines}, references, moses)
    corrected = holm([row.p_value for row in others if row.p_value is not None])
    return {first: reference} | {
        row.name: replace(row, p_value=p_value) for row, p_value in zip(others, corrected, strict=True)
    }


def _alone(name: str, scores: list[float]) -> Comparison:
    """A system that there is nothing to compare with."""
    deviation = stdev(scores) if len(scores) > 1 else None
    return Comparison(name, fmean(scores), math.nan, math.nan, seeds=len(scores), bleu_sd=deviation)


def _lines(run: Path, name: str, as_tokens: bool) -> list[str]:
    """Lines of a run's test set, as tokens or as text, whichever of them the run was trained on."""
    data = Run.open(run).recipe.data
    lines, language = list(read_lines(run / "test" / f"{name}.txt")), data.languages[1]
    if (data.scheme == "words") == as_tokens:
        return lines
    return moses_tokenized(lines, language) if as_tokens else detokenized(lines, language)


@dataclass(frozen=True)
class Table:
    """An experiment's table as it is shown."""

    columns: list[str]
    lines: list[list[str]]


def table(plan: Plan, folder: Path) -> Table:
    """What is known so far; of `henry-figures`, the figures are drawn on the way."""
    if plan.name == "henry-table1":
        return Table(["corpus", "", *TABLE_1_COLUMNS], _table_1(plan, folder))
    if plan.name == "henry-figures":
        columns = ["corpus", "system", "mean entropy", "lowest head", "highest head", "seeds"]
        return Table(columns, _figures(plan, folder))
    found = rows(plan, folder)
    pairs = plan.experiment.pairs
    paper = f"paper ({pairs[0].replace('-', '→')})" if len(pairs) == 1 and plan.experiment.published else "paper"
    columns = ["corpus", "system", paper, "its diff.", "ours", "our diff.", "95 %", "p", "ours − paper", "seeds"]
    return Table(columns, [_cells(row) for row in found])


def _cells(row: Row) -> list[str]:
    ours = "not run" if row.ours is None else f"{row.ours:.2f}"
    if row.ours_sd is not None:
        ours += f" ± {row.ours_sd:.2f}"
    return [
        row.corpus,
        row.system,
        _number(row.paper),
        _number(row.paper_difference, signed=True),
        ours,
        _number(row.difference, signed=True),
        "" if row.low is None or row.high is None else f"{row.low:+.2f} – {row.high:+.2f}",
        "" if row.p_value is None else f"{row.p_value:.3f}",
        _number(row.ours_minus_paper, signed=True),
        str(row.seeds or ""),
    ]


def _number(value: float | None, signed: bool = False) -> str:
    return "" if value is None else f"{value:+.2f}" if signed else f"{value:.2f}"


def _table_1(plan: Plan, folder: Path) -> list[list[str]]:
    found = []
    for corpus in plan.corpora:
        if corpus.pair is not None:
            found.append([corpus.shown, "paper", *(f"{value:,}" for value in TABLE_1[corpus.pair])])
        done = plan.done(corpus.name, FULL.name, folder)
        ours = _described(done[0]) if done else ["not run"] + [""] * (len(TABLE_1_COLUMNS) - 1)
        found.append([corpus.shown, "ours", *ours])
    return found


def _described(run: Path) -> list[str]:
    """The columns of Table 1 for a finished run."""
    (about,) = json.loads((run / "corpus.json").read_text(encoding="utf-8"))["pairs"]
    result, parts = read_result(run), Run.open(run).parts
    assert parts.scale_init is not None
    length = (1 + math.sqrt(1 + 4 * 2**parts.scale_init)) / 2  # g = log2(L² − L), solved for L
    parameters = sum(parameter.numel() for parameter in Run.open(run).make_model().parameters())
    numbers = f"{about['kept']:,}", f"{about['words']:,}", f"{parameters:,}", f"{length:.0f}"
    return [*numbers, f"{result['best_dev_bleu']:.2f}", f"{result['seconds'] / 3600:.2f}"]


def _figures(plan: Plan, folder: Path) -> list[list[str]]:
    """Draw the figures of each corpus of which all systems are done; how diffuse they are, as a table."""
    found = []
    for corpus in plan.corpora:
        runs = {system.label: plan.done(corpus.name, system.name, folder) for system in plan.systems}
        if all(runs.values()):
            lines = henry_figures.draw(runs, folder / "figures" / corpus.name)
            found += [[corpus.shown, *line] for line in lines]
        else:
            found += [[corpus.shown, label, "not run", "", "", ""] for label in runs]
    return found


def write(plan: Plan, found: Table, folder: Path) -> Path:
    """Keep the table beside the runs, as Markdown and JSON; returns the Markdown."""
    name = "_".join([plan.name, *(corpus.name for corpus in plan.corpora if len(plan.corpora) == 1)])
    path = folder / "tables" / f"{name}.md"
    lines = [found.columns, ["---"] * len(found.columns), *found.lines]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    about = {
        "experiment": plan.name,
        "size": plan.size,
        "shrunk": SHRUNK[plan.size],
        "rows": [asdict(row) for row in rows(plan, folder)] if plan.experiment.published else [],
        "table": [dict(zip(found.columns, line, strict=True)) for line in found.lines],
        "runs": [{"folder": str(folder / cell.name), "done": is_done(folder / cell.name)} for cell in plan.runs],
    }
    for target, text in (
        (path, f"### {plan.experiment.title}\n\n{SHRUNK[plan.size]}\n\n{body}\n"),
        (path.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False)),
    ):
        with replacing(target) as file:
            file.write(text.encode())
    return path
