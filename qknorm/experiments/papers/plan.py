"""From a table to its runs: which of them stand for which row, on which corpus, at which learning rate.

Runs belong to a corpus, not to a table: what one table has trained, another finds done.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qknorm.data import corpora
from qknorm.data.splits import SPLITS
from qknorm.errors import InputError
from qknorm.experiments.cells import Cell, Runner, is_done
from qknorm.experiments.minutes import by_plan, kept_plan
from qknorm.experiments.papers.sizes import MEDIUM_MINUTES, STAND_IN, Size, settings
from qknorm.experiments.papers.table import FULL, PAIRS, RowRecipe, TableRecipe, names
from qknorm.runs.contents import TranslationResult
from qknorm.runs.recipe import Recipe, checked, merged
from qknorm.runs.recipe_part import RecipePart
from qknorm.runs.run import Run
from qknorm.screen import Screen

_WAY_OUT = "give the row another name"


class Candidate(RecipePart):
    """The runs of a row at one learning rate, a folder for each seed."""

    rate: float | None
    """None for that of the size, where no other is tried."""
    runs: tuple[str, ...]

    def dev_score(self, folder: Path) -> float | None:
        """Of the first seed, by which rates are compared; None while it has not been trained."""
        first = folder / self.runs[0]
        if not is_done(first):
            return None
        result = Run(first).result(TranslationResult)
        return result.best_dev_bleu if result.best_dev_score is None else result.best_dev_score


class Entrant(RecipePart):
    """A row on a corpus. Where rates are tried it has a candidate for each, and the best on dev stands for it."""

    row: str
    """Its name in the table."""
    candidates: tuple[Candidate, ...]

    def chosen(self, folder: Path) -> Candidate:
        """The only one, or the best of those that were trained so far; the first where none was."""
        scores = [(tried, tried.dev_score(folder)) for tried in self.candidates]
        return max(scores, key=lambda scored: -math.inf if scored[1] is None else scored[1])[0]

    def is_settled(self, folder: Path, failed: Container[str]) -> bool:
        """Whether a rate can be chosen: there is one only, or some were trained and all others have failed.

        With SLURM others may still be queued or under way.
        """
        first = [candidate.runs[0] for candidate in self.candidates]
        left = [run for run in first if not is_done(folder / run)]
        return len(first) == 1 or (len(left) < len(first) and all(run in failed for run in left))

    def done(self, folder: Path) -> list[Path]:
        """The folders of the finished runs that stand for the row."""
        return [folder / run for run in self.chosen(folder).runs if is_done(folder / run)]

    def trained(self, folder: Path) -> list[Path]:
        """All finished runs, those at rates that were not chosen among them."""
        runs = [run for candidate in self.candidates for run in candidate.runs]
        return [folder / run for run in runs if is_done(folder / run)]


class Contest(RecipePart):
    """The rows of a table on one corpus."""

    corpus: str
    pair: str | None
    """The paper's language pair, if this is the corpus that the paper used."""
    entrants: tuple[Entrant, ...]

    @property
    def title(self) -> str:
        return f"{self.pair.replace('-', '→')} ({self.corpus})" if self.pair else self.corpus


class Experiment(RecipePart):
    """A table at a size, and the runs that fill it: what its JSON file keeps, and a report reads."""

    name: str
    size: Size
    minutes: float = MEDIUM_MINUTES
    """Of a run, at the size that is planned by them."""
    table: TableRecipe
    contests: tuple[Contest, ...]

    @property
    def folder(self) -> str:
        """The name of the folder of its runs: those of other minutes are not compared, so they lie apart."""
        return f"reproduce-{self.size}" + ("" if self.minutes == MEDIUM_MINUTES else f"-{self.minutes:g}")

    def row(self, entrant: Entrant) -> RowRecipe:
        return next(row for row in self.table.rows if row.name == entrant.row)

    def as_tokens(self, contest: Contest) -> bool:
        """Whether BLEU is that of tokens: of the TED talks the first paper scored the text."""
        return self.table.bleu == "tokens" and contest.pair in (None, "en-vi")


@dataclass(frozen=True)
class Corpus:
    """What a table is computed on."""

    name: str
    data: Mapping[str, Any]
    """The keys of a recipe that say where its text is."""
    direction: str | None


@dataclass(frozen=True)
class Plan:
    """An experiment, and how to train every run of it."""

    experiment: Experiment
    cells: Mapping[str, Cell]
    """By their names. One run may stand for several rows, where they come to the same."""
    full: Mapping[str, Recipe]
    """The recipe of the full model, by the name of the corpus."""

    def runs(self, folder: Path) -> list[Cell]:
        """All that are trained, those of one seed together.

        Of rates, one is taken with further seeds; until it is known, the first stands for it.
        """
        return self._cells([entrant.chosen(folder).runs for entrant in self._entrants], self._trials)

    def run(self, folder: Path, console: Screen, runner: Runner) -> dict[str, str]:
        """Train what is missing: first every rate with its first seed, then all seeds of the best; what failed, why."""
        return self._with_minutes_planned(folder, console, runner)._run(folder, console, runner)

    def _with_minutes_planned(self, folder: Path, console: Screen, runner: Runner) -> Plan:
        """The same with plain numbers for what minutes decide, the same for all runs on a corpus."""
        plans = {
            corpus: kept_plan(recipe, folder / corpus, console, runner.threads(len(self.runs(folder))))
            for corpus, recipe in self.full.items()
            if recipe.minutes is not None
        }
        planned = {
            name: by_plan(cell, plans[corpus]) if (corpus := name.partition("/")[0]) in plans else cell
            for name, cell in self.cells.items()
        }
        return replace(self, cells=planned)

    def _run(self, folder: Path, console: Screen, runner: Runner) -> dict[str, str]:
        failures = runner.run_missing(self.experiment.name, self._cells([], self._trials), folder, console)
        settled = [entrant for entrant in self._entrants if entrant.is_settled(folder, failures)]
        chosen = self._cells([entrant.chosen(folder).runs for entrant in settled])
        return failures | runner.run_missing(self.experiment.name, chosen, folder, console)

    @property
    def _entrants(self) -> list[Entrant]:
        return [entrant for contest in self.experiment.contests for entrant in contest.entrants]

    @property
    def _trials(self) -> list[str]:
        """The runs by which rates are chosen."""
        several = [entrant for entrant in self._entrants if len(entrant.candidates) > 1]
        return [candidate.runs[0] for entrant in several for candidate in entrant.candidates]

    def _cells(self, runs_by_seed: Sequence[Sequence[str]], trials: Sequence[str] = ()) -> list[Cell]:
        """Each once; those of one seed stand together, so that an unfinished experiment compares like with like."""
        by_seed = [run for runs in zip(*runs_by_seed, strict=True) for run in runs]
        return [self.cells[run] for run in dict.fromkeys([*trials, *by_seed])]


def plan(
    table: TableRecipe, origin: str, size: Size, corpus: str | None, seeds: int, minutes: float = MEDIUM_MINUTES
) -> Plan:
    """Every run that a table needs, all of their recipes checked; `origin` is its name, or the files it is from."""
    planner = _Planner(table, origin, size, seeds, minutes)
    contests = tuple(planner.contest(chosen) for chosen in _corpora(table, origin, size, corpus))
    name = "+".join(_short(part) for part in origin.split("+"))
    experiment = Experiment(name=name, size=size, minutes=minutes, table=table, contests=contests)
    return Plan(experiment, planner.cells, planner.full)


def _short(origin: str) -> str:
    """A table of the package by its name; a file without its folder and ending, but never by a name of the package."""
    if origin in names():
        return origin
    own = Path(origin).name.removesuffix(".yaml")
    return f"{own}-own" if own in names() else own


class _Planner:
    """Gives each run its name: that of the first row whose recipe it has, the full model before all others."""

    def __init__(self, table: TableRecipe, origin: str, size: Size, seeds: int, minutes: float) -> None:
        self._origin, self._table, self._size, self._seeds = origin, table, size, range(1, seeds + 1)
        self._minutes = minutes
        self.cells: dict[str, Cell] = {}
        self.full: dict[str, Recipe] = {}

    def contest(self, corpus: Corpus) -> Contest:
        names: dict[str, str] = {}  # of runs, by what they do
        self.full[corpus.name] = self._recipe(FULL, corpus, self._seeds[0], None)
        self._entrant(FULL, corpus, names, dict[str, Cell]())
        entrants = tuple(self._entrant(row, corpus, names, self.cells) for row in self._table.rows_at(self._size))
        return Contest(corpus=corpus.name, pair=corpus.direction, entrants=entrants)

    def _entrant(self, row: RowRecipe, corpus: Corpus, names: dict[str, str], cells: dict[str, Cell]) -> Entrant:
        candidates = []
        for rate in self._table.rates_at(self._size) or (None,):
            runs = []
            for seed in self._seeds:
                recipe = self._recipe(row, corpus, seed, rate)
                tried = "" if rate is None else f"_rate-{rate:g}"
                run = names.setdefault(_what_it_does(recipe), f"{corpus.name}/{row.name}{tried}_seed-{seed}")
                cells[run] = Cell(run, {}, recipe.model_copy(update={"name": run}), _WAY_OUT)
                runs.append(run)
            candidates.append(Candidate(rate=rate, runs=tuple(runs)))
        return Entrant(row=row.name, candidates=tuple(candidates))

    def _recipe(self, row: RowRecipe, corpus: Corpus, seed: int, rate: float | None) -> Recipe:
        content = merged(
            settings(self._size, corpus.direction, self._minutes),
            {"data": corpus.data, "training": {"seed": seed}},
            row.changed(self._size),
            {} if rate is None else {"training": {"peak": rate}},
        )
        return checked(Recipe, content, f"{self._origin}, row {row.name}")


def _what_it_does(recipe: Recipe) -> str:
    """Equal for runs that come to the same. What minutes will decide is not known yet, so defaults say nothing then."""
    return recipe.model_dump_json(exclude_unset=recipe.minutes is not None)


def _corpora(table: TableRecipe, origin: str, size: Size, corpus: str | None) -> list[Corpus]:
    if corpus is not None:
        return [find_corpus(corpus)]
    if size != "paper":
        return [find_corpus(STAND_IN[size])]
    if not table.pairs:
        raise InputError(f"{origin} names no pairs of the paper; choose a corpus with --corpus")
    return [find_corpus(PAIRS[direction]) for direction in table.pairs]


def find_corpus(name: str) -> Corpus:
    """A named corpus, a folder that holds one, or a folder with train, dev and test of any two languages."""
    folder = Path(name).resolve()
    known = {info.name for info in corpora.known() if info.languages}
    if Path(name).is_dir() and folder.name in known:
        corpora.get(folder.name, from_folder=folder)
        name = folder.name
    base = name.partition(":")[0]
    if base in known:
        direction = next((direction for direction, corpus in PAIRS.items() if corpus == name), None)
        scheme = "words" if base in PAIRS.values() else "raw"
        return Corpus(name.replace(":", "-"), {"corpus": name, "scheme": scheme}, direction)
    if not folder.is_dir():
        raise InputError(f"{name} is neither a parallel corpus (see: qknorm data list) nor a folder")
    return Corpus(folder.name, _files(name, folder), None)


def _files(name: str, folder: Path) -> dict[str, Any]:
    """Where the text of a corpus of one's own is: the name of its folder may say which language is the source."""
    codes = sorted(path.suffix[1:] for path in folder.glob("train.*"))
    if len(codes) != 2:
        raise InputError(f"{name} needs one train file in each of two languages, such as train.en and train.gl")
    if folder.name.endswith("-".join(reversed(codes))):
        codes.reverse()
    files = {split: [str(folder / f"{split}.{code}") for code in codes] for split in SPLITS}
    missing = next((path for both in files.values() for path in both if not Path(path).is_file()), None)
    if missing is not None:
        raise InputError(f"{name} has no {Path(missing).name}; it needs train, dev and test in {' and '.join(codes)}")
    source, target = files["train"]
    return {"source": source, "target": target, "dev": files["dev"], "test": files["test"], "languages": codes}
