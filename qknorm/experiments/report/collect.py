"""What lies in a folder of runs, as typed data: translators, language models and sweeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError
from qknorm.evaluation.scores import detokenized
from qknorm.experiments.sweep.results import RunResult, load_results
from qknorm.runs.language_recipe import LanguageRecipe, load_any_recipe
from qknorm.runs.recipe import Recipe
from qknorm.runs.run import Run

_DEEPEST = 3  # runs/reproduce-small/CORPUS/RUN
_DROPPED_SHOWN = 3  # examples of each reason


class _FromFile(BaseModel):
    """What is read from a JSON file of a run; keys that the report does not show are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


_Kind = TypeVar("_Kind", bound=_FromFile)
_Heads = Annotated[list[float], Field(min_length=1)]


class Diagnosis(_FromFile):
    """The attention of one layer of a language model, a number per head."""

    entropy: _Heads
    saturated: _Heads
    largest_logit: _Heads
    bound: _Heads | None


class Validation(_FromFile):
    """A line of metrics.jsonl."""

    step: int
    seconds: float
    train_loss: float
    dev_bleu: float | None = None
    dev_loss: float | None = None
    val_loss: float | None = None
    scales: dict[str, float | _Heads] = {}
    attention: list[Diagnosis] = []


class CleanedPair(_FromFile):
    """What was read of a language pair, and what was left of it."""

    read: int
    kept: int
    dropped: dict[str, int]


class Corpus(_FromFile):
    """The corpus.json of a translator."""

    pieces: int
    pairs: list[CleanedPair]


class Text(_FromFile):
    """The corpus.json of a language model."""

    characters: int
    lines: int
    sha256: str


class Plan(_FromFile):
    """The sweep.json of a sweep."""

    task: str = "language"


class Scores(_FromFile):
    """The scores.json of a test set."""

    bleu: float
    chrf: float
    ter: float


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
    def pair(self) -> str:
        return "-".join(self.languages)


@dataclass(frozen=True)
class TranslatorRun:
    folder: Path
    name: str
    recipe: Recipe
    validations: list[Validation]
    corpus: Corpus
    dropped: list[list[Dropped]]
    """For each language pair some examples, by reason."""
    tests: list[Tested]
    """Of the language pairs that have been tested."""
    scale_start: float | None
    """Where g started, if that is known."""


@dataclass(frozen=True)
class LanguageRun:
    name: str
    recipe: LanguageRecipe
    validations: list[Validation]
    text: Text

    @property
    def best_loss(self) -> float | None:
        """On the text that was held out; None before the first validation."""
        return min((each.val_loss for each in self.validations if each.val_loss is not None), default=None)


@dataclass(frozen=True)
class SweepRuns:
    name: str
    results: list[RunResult]


@dataclass(frozen=True)
class Collection:
    """All that a report is about."""

    name: str
    translators: list[TranslatorRun]
    language_models: list[LanguageRun]
    sweeps: list[SweepRuns]


def collect(folder: Path) -> Collection:
    """The runs and sweeps in a folder, or in folders some levels below it."""
    if not folder.exists():
        raise InputError(f"{folder} does not exist")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; a report is made of the folder of a run, or of a folder with runs in it")
    places = list(_places(folder, _DEEPEST))
    if not places:
        raise InputError(
            f"there is no run in {folder}: neither it nor a folder up to {_DEEPEST} levels below it holds a "
            "recipe.yaml beside a corpus.json, or a sweep.json"
        )
    found = Collection(folder.resolve().name, [], [], [])
    endings = [place.resolve().name for place in places]
    for place, ending in zip(places, endings, strict=True):
        name = ending if endings.count(ending) == 1 else place.relative_to(folder).as_posix()
        if _is_sweep(place):
            found.sweeps.append(SweepRuns(name, _sweep_results(place)))
            continue
        recipe = load_any_recipe(place / "recipe.yaml")
        if isinstance(recipe, LanguageRecipe):
            text = _read(Text, place / "corpus.json")
            found.language_models.append(LanguageRun(name, recipe, _validations(place), text))
        else:
            found.translators.append(_translator(place, name, recipe))
    return found


def _places(folder: Path, levels: int) -> Iterator[Path]:
    if _is_sweep(folder) or _is_run(folder):
        yield folder
    elif levels:
        children = (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
        for child in sorted(children, key=lambda child: _by_numbers(child.name)):
            yield from _places(child, levels - 1)


def _is_sweep(folder: Path) -> bool:
    """Of language models; a sweep of translators is a folder with runs in it like any other."""
    path = folder / "sweep.json"
    return path.is_file() and _read(Plan, path).task == "language"


def _is_run(folder: Path) -> bool:
    return (folder / "recipe.yaml").is_file() and (folder / "corpus.json").is_file()


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts heads-4 before heads-16."""
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _sweep_results(folder: Path) -> list[RunResult]:
    try:
        return load_results(folder)
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        raise InputError(f"{folder} holds a run that is damaged: {error!r}") from None


def _translator(folder: Path, name: str, recipe: Recipe) -> TranslatorRun:
    corpus = _read(Corpus, folder / "corpus.json")
    pairs = recipe.data.all_pairs
    if len(corpus.pairs) != len(pairs):
        raise InputError(f"{folder / 'corpus.json'} is of another recipe: it has {len(corpus.pairs)} language pairs")
    several = len(pairs) > 1
    dropped, tests = [], []
    for pair in pairs:
        code = "-".join(pair.languages)
        dropped.append(_dropped(folder / (f"dropped-{code}.tsv" if several else "dropped.tsv")))
        place = folder / "test" / (code if several else "")
        if (place / "scores.json").is_file():  # the last file of a test
            tests.append(_tested(place, pair.languages, recipe.data.scheme == "words"))
    return TranslatorRun(folder, name, recipe, _validations(folder), corpus, dropped, tests, _scale_start(folder))


def _tested(folder: Path, languages: tuple[str, str], tokenized: bool) -> Tested:
    sources, references, hypotheses = (
        list(read_lines(folder / f"{name}.txt")) for name in ("source", "references", "hypotheses")
    )
    if not len(sources) == len(references) == len(hypotheses) > 0:
        raise InputError(f"{folder} is damaged: source.txt, references.txt and hypotheses.txt differ in length")
    if tokenized:
        references, hypotheses = detokenized(references, languages[1]), detokenized(hypotheses, languages[1])
    return Tested(languages, sources, references, hypotheses, _read(Scores, folder / "scores.json"))


def _scale_start(folder: Path) -> float | None:
    try:
        return Run(folder).parts.scale_init
    except InputError:  # of an earlier version
        return None


def _validations(folder: Path) -> list[Validation]:
    """The metrics so far. A last line without its end is still being written, or was when the run was killed."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    lines = list(read_lines(path))
    if lines and not path.read_bytes().endswith(b"\n"):
        lines.pop()
    return [_parsed(Validation, line, f"{path}, line {number},") for number, line in enumerate(lines, start=1)]


def _dropped(path: Path) -> list[Dropped]:
    if not path.exists():
        return []
    found: dict[str, list[Dropped]] = {}
    rows = read_lines(path)
    next(rows, None)  # the heading
    for number, row in enumerate(rows, start=2):
        try:
            dropped = Dropped(*row.split("\t"))
        except TypeError:
            raise InputError(f"{path}, line {number}, is damaged: it must have four columns") from None
        examples = found.setdefault(dropped.reason, [])
        if len(examples) < _DROPPED_SHOWN:
            examples.append(dropped)
    return [dropped for examples in found.values() for dropped in examples]


def _read(kind: type[_Kind], path: Path) -> _Kind:
    return _parsed(kind, "\n".join(read_lines(path)), str(path))


def _parsed(kind: type[_Kind], text: str, shown: str) -> _Kind:
    try:
        return kind.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{shown} is damaged: {f'{where}: ' if where else ''}{first['msg']}") from None
    except ValueError as error:
        raise InputError(f"{shown} is damaged: {error}") from None
