"""The task `language`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

from qknorm.runs.contents import LanguageResult
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.language_run import LanguageRun, scale_start
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.tasks.description import OPERATIONS, TaskDescription
from qknorm.training import language


class LanguageDescription(TaskDescription[LanguageRecipe, LanguageResult]):
    """What comes next in a text, character by character."""

    recipe_type = LanguageRecipe
    result_type = LanguageResult
    headings: ClassVar[dict[str, str]] = {"best_val_loss": "best loss", "final_val_loss": "final loss"}
    is_cross_validated = True
    keeps_checkpoints = False  # hundreds of runs would fill the disk

    @property
    def measured(self) -> tuple[str, ...]:
        return ("best_val_loss", "final_val_loss", "best_step", "seconds")

    def train(self, recipe: LanguageRecipe, folder: Path, console: Screen, resume: bool) -> None:
        language.train(recipe, folder, console, resume)

    def fetch_text(self, recipe: LanguageRecipe) -> None:
        language.fold_of(recipe.data, language.read_text(recipe.data))

    def operations(self, recipe: LanguageRecipe) -> float:
        model, training = recipe.model, recipe.training
        attention, feed_forward = 4 * model.dim**2, 8 * model.dim**2
        weights = model.layers * (attention + feed_forward)
        return OPERATIONS * weights * training.batch * model.context * training.iterations

    def result(self, run: Run) -> LanguageResult:
        lines = run.metrics()
        losses = [line.measures["val_loss"] for line in lines]
        validating = sum(line.validation_seconds or 0.0 for line in lines)
        return LanguageResult(
            best_val_loss=min(losses),
            final_val_loss=losses[-1],
            best_step=lines[losses.index(min(losses))].step,
            seconds=round(lines[-1].seconds - validating, 2),
        )

    def told(self, result: LanguageResult) -> str:
        return f"{result.best_val_loss:.4f}"

    def digest_of_text(self, run: Run) -> str | None:
        return LanguageRun(run.folder).text.sha256 if run.corpus_file.is_file() else None

    def scale_start(self, run: Run) -> float | None:
        return scale_start(LanguageRun(run.folder).recipe.model)

    def untrained_loss(self, run: Run) -> float | None:
        """That of guessing every character equally often."""
        begun = LanguageRun(run.folder)
        return math.log(len(begun.characters)) if begun.characters_file.is_file() else None
