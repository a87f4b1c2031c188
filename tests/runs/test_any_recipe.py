"""Recipes of any task, and those of language models."""

from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.any_recipe import load_any_recipe
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.language_run import LanguageRun
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import Recipe
from qknorm.runs.translator_run import TranslatorRun


def test_the_key_task_chooses_the_kind(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("data: {corpus: phrasebook-en-gl}\n")
    assert isinstance(load_any_recipe(path), Recipe)
    with pytest.raises(InputError, match="holds a translator, not a language model"):
        _ = LanguageRun(tmp_path).recipe
    path.write_text("task: language\ndata: {corpus: tinyshakespeare}\nmodel: {learned_p: 'no'}\n")  # of 2026-11-18
    changed = load_any_recipe(path, ["p=3", "training.seed=4"])
    assert isinstance(changed, LanguageRecipe)
    assert (changed.model.qk_norm, changed.training.seed) == (LpRecipe(p=3.0), 4)
    with pytest.raises(InputError, match=r"holds a language model, not a translator; try: qknorm generate .*"):
        TranslatorRun.open(tmp_path).make_model()


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
