"""How long runs will take on this machine: a guess, before they begin."""

from __future__ import annotations

from collections.abc import Sequence

from qknorm.experiments.cells import Cell, cores
from qknorm.runs.language_recipe import AnyRecipe, LanguageRecipe
from qknorm.runs.recipe import Recipe
from qknorm.training.speed import operations_per_second
from qknorm.training.start import most_updates

# Of the speed of a large matrix product, what a training run on a CPU reaches: small translators of 6.6 minutes did.
_EFFICIENCY = 0.35
_SECONDS_BESIDE_TRAINING = 10.0


def estimated_seconds(cells: Sequence[Cell], jobs: int | None) -> dict[str, float]:
    """Of each run by its name, when `jobs` of them share the cores; none ends before its last possible update."""
    threads = max(1, cores() // min(jobs or cores(), max(len(cells), 1)))
    speed = operations_per_second(threads=threads) * _EFFICIENCY
    return {cell.name: _seconds(cell.recipe, speed) for cell in cells}


def _seconds(recipe: AnyRecipe, speed: float) -> float:
    if isinstance(recipe, Recipe) and recipe.minutes is not None:
        return recipe.minutes * 60
    return _operations(recipe) / speed + _SECONDS_BESIDE_TRAINING


def _operations(recipe: AnyRecipe) -> float:
    """Six for each weight and position: two forwards, four backwards."""
    dim = recipe.model.dim
    attention = 4 * dim**2
    if isinstance(recipe, LanguageRecipe):
        weights = recipe.model.layers * (attention + 8 * dim**2)
        positions = recipe.training.batch * recipe.model.context
    else:
        model, feed_forward = recipe.model, 2 * dim * recipe.model.feed_forward
        weights = model.encoder_layers * (attention + feed_forward)
        weights += model.decoder_layers * (2 * attention + feed_forward) + dim * recipe.data.merges
        positions = recipe.training.budget * recipe.training.accumulate
    return 6.0 * weights * positions * most_updates(recipe)
