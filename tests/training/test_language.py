from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qknorm import comparable_scale, henry_scale
from qknorm.errors import InputError
from qknorm.runs.language_recipe import GPTRecipe, LanguageRecipe, load_any_recipe
from qknorm.runs.language_run import gpt_config, recipe_of
from qknorm.runs.recipe import Recipe, save_recipe
from qknorm.screen import Screen
from qknorm.training.language import fold_of, read_text, train


def recipe(folder: Path, text: str, **data: Any) -> LanguageRecipe:
    (folder / "text").write_text(text)
    model = {"layers": 1, "heads": 2, "dim": 8, "context": 8}
    return LanguageRecipe.model_validate({"data": {"file": str(folder / "text"), **data}, "model": model})


def test_alpha_starts_at_the_same_value_or_equally_hot() -> None:
    model = GPTRecipe(dim=96, heads=6, context=64, p=3.0)
    assert gpt_config(model, 65).scale_init == henry_scale(64)
    comparable = model.model_copy(update={"start": "comparable"})
    assert gpt_config(comparable, 65).scale_init == comparable_scale(3.0, 16, henry_scale(64))
    assert gpt_config(model.model_copy(update={"scale_init": 5.0}), 65).scale_init == 5.0
    plain = gpt_config(model.model_copy(update={"qk_norm": "none"}), 65)
    assert (plain.qk_norm, plain.scale_init) == (None, None)


def test_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, "a line\n" * 100)
    fold = fold_of(chosen.data, read_text(chosen.data))
    assert (fold.train[0].end, fold.held_out.start, fold.held_out.end) == (630, 630, 700)


@pytest.mark.parametrize(
    ("text", "data", "message"),
    [
        ("", {}, "is empty"),
        ("abcdefgh\n", {}, "a window of 9 characters does not fit"),
        ("a line of text\n" * 4, {"folds": 5}, "a text of 4 lines cannot be cut into 5 folds"),
        ("a\n" * 40, {"folds": 20, "fold": 3}, "a window of 9 characters does not fit"),
    ],
)
def test_a_text_that_is_too_short_is_named(tmp_path: Path, text: str, data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(recipe(tmp_path, text, **data), tmp_path / "run", Screen(quiet=True), resume=False)
    assert not (tmp_path / "run").exists()


def test_another_text_is_refused_when_going_on(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, "a line of text\n" * 40)
    short = chosen.model_copy(update={"training": chosen.training.model_copy(update={"iterations": 2, "batch": 2})})
    train(short, tmp_path / "run", Screen(quiet=True), resume=False)
    (tmp_path / "text").write_text("another text\n" * 40)
    with pytest.raises(InputError, match="the text has changed"):
        train(short, tmp_path / "run", Screen(quiet=True), resume=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("task: langage\n", "task must be one of translation, language, not 'langage'"),
        ("task: language\ndata: {corpus: x, fold: 3, folds: 3}\n", r"data.fold \(3\) must be below"),
        ("task: language\ndata: {}\n", "give either data.corpus or data.file"),
        ("task: language\ndata: {file: x}\nmodel: {p: 0.5}\n", "model.p: .*greater than or equal to 1"),
        ("task: language\ndata: {file: x}\nmodel: {headss: 2}\n", "no key model.headss; the nearest is model.heads"),
        ("task: language\ndata: {file: x}\nmodel: {heads: 5}\n", r"model.heads \(5\) must divide"),
        ("task: language\ndata: {file: x}\nmodel: {learned_p: head, p: 1}\n", "model.learned_p needs"),
    ],
)
def test_a_wrong_recipe_gets_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(content)
    with pytest.raises(InputError, match=message):
        load_any_recipe(tmp_path / "recipe.yaml")


def test_a_run_goes_on_with_its_own_recipe_only(tmp_path: Path) -> None:
    chosen = recipe(tmp_path, "a line of text\n" * 40)
    save_recipe(chosen, tmp_path / "recipe.yaml")
    changed = chosen.model_copy(update={"training": chosen.training.model_copy(update={"seed": 5})})
    with pytest.raises(InputError, match=r"was begun with training\.seed=1, not 5"):
        train(changed, tmp_path, Screen(quiet=True), resume=True)


def test_the_key_task_chooses_the_kind(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {corpus: phrasebook-en-gl}\n")
    assert isinstance(load_any_recipe(path), Recipe)
    with pytest.raises(InputError, match="holds a translator, not a language model"):
        recipe_of(tmp_path)
    path.write_text("task: language\ndata: {corpus: tinyshakespeare}\n")
    changed = load_any_recipe(path, ["p=3", "training.seed=4"])
    assert isinstance(changed, LanguageRecipe)
    assert (changed.model.p, changed.training.seed) == (3.0, 4)


def test_the_recipes_of_the_project_are_valid() -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    shakespeare = load_any_recipe(recipes / "shakespeare.yaml")
    assert isinstance(shakespeare, LanguageRecipe)
    assert shakespeare.model.model_dump(include={"layers", "heads", "dim", "context"}) == {
        "layers": 4, "heads": 4, "dim": 128, "context": 64,
    }  # fmt: skip
