"""Training whatever a recipe describes: a translator or a language model."""

from __future__ import annotations

import contextlib
from pathlib import Path

from qknorm import processes
from qknorm.data import corpora
from qknorm.runs.language_recipe import AnyRecipe, LanguageRecipe
from qknorm.runs.writer import only_writer
from qknorm.screen import Screen
from qknorm.training import language, translation


def train(recipe: AnyRecipe, folder: Path, console: Screen, resume: bool) -> None:
    """Train from the beginning, or go on where an interrupted run stands."""
    with only_writer(folder) if processes.rank() == 0 else contextlib.nullcontext():
        if isinstance(recipe, LanguageRecipe):
            language.train(recipe, folder, console, resume)
        else:
            translation.train(recipe, folder, console, resume)


def fetch_text(recipe: AnyRecipe) -> None:
    """Make sure that the text is there: before many runs ask for it, and each finds that it is not."""
    if isinstance(recipe, LanguageRecipe):
        language.fold_of(recipe.data, language.read_text(recipe.data))
    else:
        for pair in recipe.data.all_pairs:
            if pair.corpus is not None:
                corpora.get(pair.corpus)


def most_updates(recipe: AnyRecipe) -> int:
    """There are never more updates than this."""
    if isinstance(recipe, LanguageRecipe):
        return recipe.training.iterations
    return translation.limits_of(recipe).most_updates
