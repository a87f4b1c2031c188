"""A task that the package knows nothing of: a line through points. It needs a recipe, a result and a description."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from qknorm.runs.contents import Result
from qknorm.runs.recipe import AnyRecipe, refuse_changes
from qknorm.runs.recipe_part import RecipePart
from qknorm.runs.run import Run, refuse_to_overwrite
from qknorm.screen import Screen
from qknorm.tasks.description import OPERATIONS, TaskDescription
from tests.training.toy import Toy, trainer


class Points(RecipePart):
    noise: float = Field(0.1, ge=0)


class Learning(RecipePart):
    updates: int = Field(12, ge=1)


class LineRecipe(AnyRecipe):
    """A line."""

    title: ClassVar[str] = "Lines"
    product: ClassVar[str] = "a line"
    command: ClassVar[str] = "report"

    task: Literal["line"] = "line"
    data: Points = Points()
    training: Learning = Learning()


class LineResult(Result):
    best: float


class LineDescription(TaskDescription[LineRecipe, LineResult]):
    recipe_type = LineRecipe
    result_type = LineResult
    measured = ("best", "seconds")
    headings: ClassVar[dict[str, str]] = {"best": "best score"}

    def train(self, recipe: LineRecipe, folder: Path, console: Screen, resume: bool) -> None:
        run = Run(folder)
        if resume:
            refuse_changes(Run.open(folder).recipe, recipe, folder)
        else:
            refuse_to_overwrite(run)
            run.save_recipe(recipe)
        training = trainer(folder, Toy(noise=recipe.data.noise), console=console, max_updates=recipe.training.updates)
        if resume:
            training.resume()
        training.train()

    def fetch_text(self, recipe: LineRecipe) -> None:
        """There is none."""

    def operations(self, recipe: LineRecipe) -> float:
        return OPERATIONS * 5 * recipe.training.updates

    def result(self, run: Run) -> LineResult:
        lines = run.metrics()
        return LineResult(best=max(line.measures["dev_bleu"] for line in lines), seconds=lines[-1].seconds)

    def told(self, result: LineResult) -> str:
        return f"score {result.best:.1f}"
