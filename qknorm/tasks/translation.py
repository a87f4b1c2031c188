"""The task `translation`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from qknorm.data import corpora
from qknorm.metrics.table import METRICS
from qknorm.runs.contents import TranslationResult, ValidationLine
from qknorm.runs.recipe import Recipe, settled
from qknorm.runs.run import Run
from qknorm.runs.translator_run import TranslatorRun
from qknorm.screen import Screen
from qknorm.tasks.description import OPERATIONS, TaskDescription
from qknorm.training import translation


class TranslationDescription(TaskDescription[Recipe, TranslationResult]):
    """Lines of one language in, lines of another out."""

    recipe_type = Recipe
    result_type = TranslationResult
    headings: ClassVar[dict[str, str]] = {
        "bleu": f"test {METRICS['bleu'].label}",
        "chrf": METRICS["chrf"].label,
        "best_dev_bleu": "best dev BLEU",
    }
    is_tested = True

    @property
    def measured(self) -> tuple[str, ...]:
        return (*METRICS, "best_dev_bleu", "best_dev_score", "updates", "seconds")

    def train(self, recipe: Recipe, folder: Path, console: Screen, resume: bool) -> None:
        translation.train(recipe, folder, console, resume)

    def prolong(self, recipe: Recipe, folder: Path, console: Screen, minutes: float) -> None:
        translation.train(recipe, folder, console, resume=True, more_minutes=minutes)

    def fetch_text(self, recipe: Recipe) -> None:
        for direction in recipe.data.directions:
            if direction.corpus is not None:
                corpora.get(direction.corpus)

    def operations(self, recipe: Recipe) -> float:
        model, training, dim = recipe.model, recipe.training, recipe.model.dim
        attention, feed_forward = 4 * dim**2, 2 * dim * model.feed_forward
        encoder = model.encoder_layers * (attention + feed_forward)
        weights = encoder + model.decoder_layers * (2 * attention + feed_forward) + dim * recipe.data.merges
        updates = translation.settings_of(recipe).most_updates
        return OPERATIONS * weights * training.budget * training.accumulate * updates

    def result(self, run: Run) -> TranslationResult:
        """The scores are means over language pairs, where there are several."""
        lines, scores = run.metrics(), [test.scores().measures for test in run.tests()]
        known = [name for name in METRICS if all(name in test for test in scores)]  # it may be of an earlier version
        return TranslationResult(
            measures={name: fmean(test[name] for test in scores) for name in known},
            best_dev_bleu=max(line.measures["dev_bleu"] for line in lines),
            best_dev_score=_best_dev_score(run, lines),
            updates=lines[-1].step,
            seconds=lines[-1].seconds,
        )

    def told(self, result: TranslationResult) -> str:
        return f"test BLEU {result.measures['bleu']:.2f}"

    def digest_of_text(self, run: Run) -> str | None:
        translator = TranslatorRun(run.folder)
        return translator.parts.corpus if translator.pairs_file.is_file() else None

    def scale_start(self, run: Run) -> float | None:
        return TranslatorRun(run.folder).parts.scale_init

    def planned_seconds(self, recipe: Recipe) -> float | None:
        return None if recipe.minutes is None else recipe.minutes * 60

    def is_same(self, begun: Recipe, given: Recipe) -> bool:
        return begun == settled(given, begun)


def _best_dev_score(run: Run, lines: Sequence[ValidationLine]) -> float:
    """By the metric that the recipe chooses; more is better, whichever that is."""
    name = TranslatorRun(run.folder).recipe.training.metric
    sign = 1 if METRICS[name].more_is_better else -1
    return max(sign * line.measures[f"dev_{name}"] for line in lines)
