"""A table of words and their translations becomes two texts: RUN/words/1.source and 1.target, and so on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from qknorm import processes
from qknorm.data.glossary import read_entries
from qknorm.data.textfiles import write_lines
from qknorm.runs.recipe import BorrowedRecipe, Recipe

_FOLDER = "words"


def with_word_lists(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with each table taken apart. A word may have several translations, and be its own, as names are."""
    texts = tuple(
        _apart(text, folder / _FOLDER / str(number)) if text.kind == "words" and text.source is None else text
        for number, text in enumerate(recipe.data.extra, 1)
    )
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"extra": texts})})


def _apart(table: BorrowedRecipe, place: Path) -> BorrowedRecipe:
    sides = {side: place.with_suffix(f".{side}") for side in ("source", "target")}
    processes.from_first(partial(_write, table, *sides.values()))
    return table.model_copy(update={side: str(path) for side, path in sides.items()})


def _write(table: BorrowedRecipe, source: Path, target: Path) -> None:
    _, words, translations = zip(*read_entries(Path(table.target), *table.languages), strict=True)
    source.parent.mkdir(parents=True, exist_ok=True)
    write_lines(source, words)
    write_lines(target, translations)
