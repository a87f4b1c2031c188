"""What everything above training asks about a task, in one shape; a task is a file with its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from qknorm.errors import InputError
from qknorm.runs.contents import Result
from qknorm.runs.recipe import AnyRecipe
from qknorm.runs.run import Run
from qknorm.screen import Screen

RecipeT = TypeVar("RecipeT", bound=AnyRecipe)
ResultT = TypeVar("ResultT", bound=Result)


# Six for each weight and position: two forwards, four backwards.
OPERATIONS = 6.0


class TaskDescription(ABC, Generic[RecipeT, ResultT]):
    """How a task is trained, sized and summed up."""

    recipe_type: type[RecipeT]
    result_type: type[ResultT]
    """What result.json holds."""
    headings: ClassVar[dict[str, str]]
    """Of those, what a table of many runs shows, the most important first, and under which headings."""
    is_cross_validated: ClassVar[bool] = False
    """Whether sweeps are about p, by folds of the text and curves of the loss; else they are a table of scores."""
    is_tested: ClassVar[bool] = False
    """Whether a run ends with a test, whose translations are compared; else its losses are."""
    keeps_checkpoints: ClassVar[bool] = True
    """Whether a run among many keeps its weights when it is done."""

    @property
    @abstractmethod
    def measured(self) -> tuple[str, ...]:
        """What the result of a run holds, in the order of results.csv."""

    @abstractmethod
    def train(self, recipe: RecipeT, folder: Path, console: Screen, resume: bool) -> object:
        """Train from the beginning, or go on where an interrupted run stands."""

    def prolong(self, recipe: RecipeT, folder: Path, console: Screen, minutes: float) -> object:  # noqa: ARG002
        """Let a run that has ended go on for this many minutes, where the task knows how."""
        raise InputError(
            f"{folder} holds {recipe.product}, which cannot be prolonged: its recipe says how long it is trained"
        )

    @abstractmethod
    def fetch_text(self, recipe: RecipeT) -> None:
        """Make sure that the text is there: before many runs ask for it, and each finds that it is not."""

    @abstractmethod
    def operations(self, recipe: RecipeT) -> float:
        """How many a whole training takes, at most, as far as that is known before the text is."""

    @abstractmethod
    def result(self, run: Run) -> ResultT:
        """What a finished run came to."""

    @abstractmethod
    def told(self, result: ResultT) -> str:
        """That in a few words, for a line on the screen."""

    def digest_of_text(self, run: Run) -> str | None:  # noqa: ARG002
        """What a run has kept of the text it learned, to tell whether another has the same; None if nothing."""
        return None

    def scale_start(self, run: Run) -> float | None:  # noqa: ARG002
        """Where g started; None without query-key normalisation by the Lp norm, or where a default was taken."""
        return None

    def untrained_loss(self, run: Run) -> float | None:  # noqa: ARG002
        """The loss of a model that knows nothing, where runs of the task are compared by it and the run has begun."""
        return None

    def planned_seconds(self, recipe: RecipeT) -> float | None:  # noqa: ARG002
        """How long a run will take, where its recipe says so."""
        return None

    def is_same(self, begun: RecipeT, given: RecipeT) -> bool:
        """Whether a run that was begun with one recipe is what the other describes."""
        return begun == given
