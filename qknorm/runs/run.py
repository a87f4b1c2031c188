"""The run folder, whatever was learned in it: everything another command needs, movable to another machine.

All names in it are spelled here; those of one task alone in its own class.

runs/NAME/  recipe.yaml  corpus.json  metrics.jsonl  checkpoints/  status.json (how far it is)
            tensorboard/  wandb/  wandb-id.txt (if the recipe asks for them)
            test/{source.txt, references.txt, hypotheses.txt, scores.json}, by pair if there are several
            result.json, failure.txt, log.txt (of one run among many)
"""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from qknorm.data import prepared
from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError
from qknorm.runs.any_recipe import load_any_recipe
from qknorm.runs.checkpoint import Checkpoints
from qknorm.runs.contents import Result, Scores, Status, ValidationLine
from qknorm.runs.recipe import AnyRecipe, save_recipe

RecipeT = TypeVar("RecipeT", bound=AnyRecipe)
ResultT = TypeVar("ResultT", bound=Result)


class InFolder:
    """A file or folder of this name in that of a run or a test set."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, owner: Run | TestSet, _kind: object = None) -> Path:
        return owner.folder / self.name


@dataclass(frozen=True)
class TestSet:
    """The files of a test set: what was translated, what it should be, and what a run made of it."""

    __test__ = False  # pytest would take it for a test of ours

    folder: Path

    source = InFolder("source.txt")
    references = InFolder("references.txt")
    hypotheses = InFolder("hypotheses.txt")
    scores_file = InFolder("scores.json")
    """The last file to be written: with it the test is done."""

    @property
    def is_done(self) -> bool:
        return self.scores_file.is_file()

    def scores(self) -> Scores:
        return Scores.of_file(self.scores_file)


class Run:
    """A run folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path) -> Self:
        """An existing run; an InputError if the folder is not one."""
        run = cls(folder)
        if not run.is_begun:
            raise InputError(f"{folder} is not a run folder: there is no {run.recipe_file.name} in it")
        return run

    recipe_file = InFolder("recipe.yaml")
    corpus_file = InFolder(prepared.CORPUS)
    """What is known about the text."""
    metrics_file = InFolder("metrics.jsonl")
    status_file = InFolder("status.json")
    """How far a run is that another process has under way."""
    tensorboard_folder = InFolder("tensorboard")
    wandb_id_file = InFolder("wandb-id.txt")
    """By what Weights & Biases tells this run from all others."""
    log_file = InFolder("log.txt")
    """What one run among many said while nobody watched."""
    result_file = InFolder("result.json")
    """What one run among many came to: it is done when this file is there."""
    failure_file = InFolder("failure.txt")
    """Why one run among many has failed, for whoever did not wait for it."""

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints")

    @property
    def is_begun(self) -> bool:
        """The recipe is the last file to be written when a run begins: with it the folder is a run."""
        return self.recipe_file.is_file()

    @property
    def is_done(self) -> bool:
        """Whether one run among many has come to its end."""
        return self.result_file.is_file()

    @property
    def kind(self) -> str:
        """The task: translation or language."""
        return self.recipe.task

    @property
    def recipe(self) -> AnyRecipe:
        return load_any_recipe(self.recipe_file)

    def recipe_of(self, kind: type[RecipeT]) -> RecipeT:
        """The recipe of a run whose task is known; an InputError if it is another."""
        recipe = load_any_recipe(self.recipe_file)
        if not isinstance(recipe, kind):
            raise InputError(
                f"{self.folder} holds {recipe.product}, not {kind.product}; "
                f"try: qknorm {recipe.command} {shlex.quote(str(self.folder))}"
            )
        return recipe

    def save_recipe(self, recipe: AnyRecipe) -> None:
        save_recipe(recipe, self.recipe_file)

    def metrics(self) -> list[ValidationLine]:
        """What every validation measured. A line without its end is still being written, or was when it was killed."""
        if not self.metrics_file.exists():
            return []
        lines = list(read_lines(self.metrics_file))
        if lines and not self.metrics_file.read_bytes().endswith(b"\n"):
            lines.pop()
        where = f"{self.metrics_file}, line"
        return [ValidationLine.of_text(line, f"{where} {number},") for number, line in enumerate(lines, start=1)]

    def status(self) -> Status | None:
        """How far a run is that another process has under way."""
        with contextlib.suppress(InputError, OSError):  # not there yet, or just being written
            return Status.of_file(self.status_file)
        return None

    def forget_status(self) -> None:
        """What a killed process wrote says nothing any more."""
        self.status_file.unlink(missing_ok=True)

    def test_set(self, direction: str = "") -> TestSet:
        """The test set of the only language pair, or of one of several such as en-gl."""
        return TestSet(self.folder / "test" / direction)

    def tests(self) -> list[TestSet]:
        """The test sets that are done; a language model has none."""
        done = self.folder.glob(f"test/**/{self.test_set().scores_file.name}")
        return [TestSet(path.parent) for path in sorted(done)]

    def result(self, kind: type[ResultT]) -> ResultT:
        """What one run among many came to."""
        return kind.of_file(self.result_file)

    def save_result(self, result: Result) -> None:
        result.write(self.result_file)

    def failure(self) -> str | None:
        """Why it failed when it was last tried; None if it did not, or is being tried again."""
        return self.failure_file.read_text(encoding="utf-8") if self.failure_file.is_file() else None

    def save_failure(self, reason: str) -> None:
        with replacing(self.failure_file) as file:
            file.write(reason.encode())

    def forget_failure(self) -> None:
        self.failure_file.unlink(missing_ok=True)


def folder_of(name: str, runs: Path) -> Path:
    """The folder of the run of this name; an InputError for a name that leads out of the folder of all runs."""
    path = Path(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise InputError(f"name={name} cannot name a folder in {runs}; choose another, such as name=mine")
    return runs / path


def other_text(folder: Path) -> str:
    """What is said to somebody who resumes a run with another text."""
    return f"the text has changed since {folder} was begun; a run cannot go on with another text"


def refuse_to_overwrite(run: Run) -> None:
    """A new run does not begin where another one is."""
    if run.is_begun:
        raise InputError(f"{run.folder} holds a run already; resume it, or choose another name=NAME")
