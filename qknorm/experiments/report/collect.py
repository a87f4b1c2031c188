"""What lies in a folder of runs, as typed data: translators, language models and sweeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qknorm.data.corpus_report import CorpusReport, TextReport
from qknorm.data.jsonfiles import Stored
from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError
from qknorm.evaluation.scores import detokenized
from qknorm.experiments.experiment import PLAN, Experiment, is_sweep
from qknorm.experiments.results import RunResult, load_results
from qknorm.runs.contents import Scores, ValidationLine
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.language_run import LanguageRun
from qknorm.runs.recipe import Recipe
from qknorm.runs.run import Run, TestSet
from qknorm.runs.translator_run import TranslatorRun
from qknorm.tasks.table import TASKS

_DEEPEST = 3  # runs/reproduce-small/CORPUS/RUN
_DROPPED_SHOWN = 3  # examples of each reason


class _Table(Stored):
    """The JSON of a table."""

    plan: Experiment | None = None


@dataclass(frozen=True)
class Dropped:
    """A pair of sentences that was not learned from."""

    line: str
    reason: str
    source: str
    target: str


@dataclass(frozen=True)
class Tested:
    """A test set, and what a run made of it; of tokenised text, references and hypotheses are detokenised."""

    languages: tuple[str, str]
    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    scores: Scores

    @property
    def direction(self) -> str:
        return "-".join(self.languages)


@dataclass(frozen=True)
class TrainedTranslator:
    folder: Path
    name: str
    recipe: Recipe
    validations: list[ValidationLine]
    corpus: CorpusReport
    dropped: list[list[Dropped]]
    """For each language pair some examples, by reason."""
    tests: list[Tested]
    """Of the language pairs that have been tested."""
    scale_start: float | None
    """Where g started, if that is known."""


@dataclass(frozen=True)
class Trained:
    """A run of a task that has no section of its own."""

    name: str
    validations: list[ValidationLine]


@dataclass(frozen=True)
class TrainedLanguageModel(Trained):
    recipe: LanguageRecipe
    text: TextReport

    @property
    def best_loss(self) -> float | None:
        """On the text that was held out; None before the first validation."""
        return min((line.val_loss for line in self.validations if line.val_loss is not None), default=None)


@dataclass(frozen=True)
class SweepRuns:
    name: str
    experiment: Experiment
    results: list[RunResult]


@dataclass(frozen=True)
class Collection:
    """All that a report is about."""

    name: str
    translators: list[TrainedTranslator]
    language_models: list[TrainedLanguageModel]
    others: list[Trained]
    sweeps: list[SweepRuns]
    experiments: list[tuple[Experiment, Path]]
    """Those in which the translators take part, with the folder of their runs."""


def collect(folder: Path) -> Collection:
    """The runs and sweeps in a folder, or in folders some levels below it."""
    if not folder.exists():
        raise InputError(f"{folder} does not exist")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; a report is made of the folder of a run, or of a folder with runs in it")
    folders = list(_folders_with_runs(folder, _DEEPEST))
    if not folders:
        raise InputError(
            f"there is no run in {folder}: neither it nor a folder up to {_DEEPEST} levels below it holds a "
            f"{Run(folder).recipe_file.name} beside a {Run(folder).corpus_file.name}, or a {PLAN}"
        )
    collection = Collection(folder.resolve().name, [], [], [], [], [])
    endings = [path.resolve().name for path in folders]
    for path, ending in zip(folders, endings, strict=True):
        name = ending if endings.count(ending) == 1 else path.relative_to(folder).as_posix()
        if _is_sweep(path):
            collection.sweeps.append(_sweep(name, path))
            continue
        recipe = Run(path).recipe
        if isinstance(recipe, Recipe):
            collection.translators.append(_translator(TranslatorRun(path), name))
        elif isinstance(recipe, LanguageRecipe):
            text = LanguageRun(path).text
            collection.language_models.append(TrainedLanguageModel(name, Run(path).metrics(), recipe, text))
        else:
            collection.others.append(Trained(name, Run(path).metrics()))
    for home in dict.fromkeys(run.folder.parent.parent for run in collection.translators):
        collection.experiments.extend((experiment, home) for experiment in _experiments(home))
    return collection


def _experiments(folder: Path) -> list[Experiment]:
    """What `qknorm reproduce` planned for the runs of a folder; tables of an earlier version do not say."""
    files = sorted((folder / "tables").glob("*.json"), key=lambda path: _by_numbers(path.name))
    plans = [_Table.of_file(path).plan for path in files]
    return [plan for plan in plans if plan is not None]


def _folders_with_runs(folder: Path, levels: int) -> Iterator[Path]:
    if _is_sweep(folder) or _is_run(folder):
        yield folder
    elif levels:
        children = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
        for child in sorted(children, key=lambda child: _by_numbers(child.name)):
            yield from _folders_with_runs(child, levels - 1)


def _is_sweep(folder: Path) -> bool:
    """Whether a sweep is shown as a whole; any other is a folder with runs in it."""
    if not is_sweep(folder):
        return False
    task = TASKS.get(Experiment.of_file(folder / PLAN).task)
    return task is not None and task.is_cross_validated


def _is_run(folder: Path) -> bool:
    run = Run(folder)
    return run.is_begun and (run.corpus_file.is_file() or run.metrics_file.is_file())


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts heads-4 before heads-16."""
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _sweep(name: str, folder: Path) -> SweepRuns:
    try:
        experiment = Experiment.of_file(folder / PLAN)
        return SweepRuns(name, experiment, load_results(experiment, folder))
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise InputError(f"{folder} holds a run that is damaged: {error!r}") from None


def _translator(run: TranslatorRun, name: str) -> TrainedTranslator:
    recipe, corpus = run.recipe, run.corpus
    directions = recipe.data.directions
    if len(corpus.pairs) != len(directions):
        raise InputError(f"{run.corpus_file} is of another recipe: it has {len(corpus.pairs)} language pairs")
    dropped, tests = [], []
    for direction in directions:
        code = "-".join(direction.languages) if len(directions) > 1 else ""
        dropped.append(_dropped(run.dropped_file(code)))
        test = run.test_set(code)
        if test.is_done:
            tests.append(_tested(test, direction.languages, recipe.data.scheme == "words"))
    start = run.parts.scale_init if run.pairs_file.is_file() else None  # earlier versions did not keep it
    return TrainedTranslator(run.folder.resolve(), name, recipe, run.metrics(), corpus, dropped, tests, start)


def _tested(test: TestSet, languages: tuple[str, str], tokenized: bool) -> Tested:
    files = (test.source, test.references, test.hypotheses)
    sources, references, hypotheses = (list(read_lines(file)) for file in files)
    if not len(sources) == len(references) == len(hypotheses) > 0:
        raise InputError(f"{test.folder} is damaged: {', '.join(file.name for file in files)} differ in length")
    if tokenized:
        references, hypotheses = detokenized(references, languages[1]), detokenized(hypotheses, languages[1])
    return Tested(languages, sources, references, hypotheses, test.scores())


def _dropped(path: Path) -> list[Dropped]:
    if not path.exists():
        return []
    by_reason: dict[str, list[Dropped]] = {}
    rows = read_lines(path)
    next(rows, None)  # the heading
    for number, row in enumerate(rows, start=2):
        try:
            dropped = Dropped(*row.split("\t"))
        except TypeError:
            raise InputError(f"{path}, line {number}, is damaged: it must have four columns") from None
        examples = by_reason.setdefault(dropped.reason, [])
        if len(examples) < _DROPPED_SHOWN:
            examples.append(dropped)
    return [dropped for examples in by_reason.values() for dropped in examples]
