from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qknorm.errors import InputError
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.screen import Screen
from qknorm.training.language import fold_of, read_text, train


def recipe(folder: Path, text: str, **data: Any) -> LanguageRecipe:
    (folder / "text").write_text(text)
    model = {"layers": 1, "heads": 2, "dim": 8, "context": 8}
    return LanguageRecipe.model_validate({"data": {"file": str(folder / "text"), **data}, "model": model})


def test_a_text_that_is_too_short_is_named(tmp_path: Path) -> None:
    for text, data, message in (
        ("", {}, "is empty"),
        ("abcdefgh\n", {}, "a window of 9 characters does not fit"),
        ("a line of text\n" * 4, {"folds": 5}, "a text of 4 lines cannot be cut into 5 folds"),
        ("a\n" * 40, {"folds": 20, "fold": 3}, "a window of 9 characters does not fit"),
    ):
        with pytest.raises(InputError, match=message):
            train(recipe(tmp_path, text, **data), tmp_path / "run", Screen(quiet=True), resume=False)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_with_its_own_text_and_recipe_only(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, "a line of text\n" * 40)
    short = chosen.model_copy(update={"training": chosen.training.model_copy(update={"iterations": 2, "batch": 2})})
    train(short, tmp_path / "run", Screen(quiet=True), resume=False)
    with pytest.raises(InputError, match=r"was begun with training\.batch=2, not 64"):
        train(chosen, tmp_path / "run", Screen(quiet=True), resume=True)
    (tmp_path / "text").write_text("another text\n" * 40)
    with pytest.raises(InputError, match="the text has changed"):
        train(short, tmp_path / "run", Screen(quiet=True), resume=True)


def test_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, "a line\n" * 100)
    fold = fold_of(chosen.data, read_text(chosen.data))
    assert (fold.train[0].end, fold.held_out.start, fold.held_out.end) == (630, 630, 700)
