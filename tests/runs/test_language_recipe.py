from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.any_recipe import load_any_recipe
from qknorm.runs.language_recipe import LanguageRecipe


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("task: langage\n", "task must be one of translation, language, not 'langage'"),
        ("task: language\ndata: {corpus: x, fold: 3, folds: 3}\n", r"data.fold \(3\) must be below"),
        ("task: language\ndata: {}\n", "give either data.corpus or data.file"),
        ("task: language\ndata: {file: x}\nmodel: {p: 0.5}\n", "model.p: .*greater than or equal to 1"),
        ("task: language\ndata: {file: x}\nmodel: {headss: 2}\n", "no key model.headss; the nearest is model.heads"),
        ("task: language\ndata: {file: x}\nmodel: {heads: 5}\n", r"model.heads \(5\) must divide"),
        ("task: language\ndata: {file: x}\ntraining: {seed: -1}\n", "training.seed: .*greater than or equal to 0"),
        (f"task: language\ndata: {{file: x}}\ntraining: {{seed: {10**23}}}\n", "training.seed: .*less than"),
        ("task: language\ndata: {file: x}\ntraining: {final: .inf}\n", "training.final: .*a finite number"),
        ("task: language\ndata: {file: x}\nmodel: {scale_init: .nan}\n", "model.scale_init"),
        ("task: language\ndata: {file: x}\nmodel: {learned_p: head}\n", "model.learned_p was an experiment"),
    ],
)
def test_a_wrong_recipe_gets_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(content)
    with pytest.raises(InputError, match=message):
        load_any_recipe(tmp_path / "recipe.yaml")


def test_the_recipes_of_the_project_are_valid() -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    shakespeare = load_any_recipe(recipes / "shakespeare.yaml")
    assert isinstance(shakespeare, LanguageRecipe)
    assert shakespeare.model.model_dump(include={"layers", "heads", "dim", "context"}) == {
        "layers": 4, "heads": 4, "dim": 128, "context": 64,
    }  # fmt: skip
