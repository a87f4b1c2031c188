from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.any_recipe import load_any_recipe
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.language_run import LanguageRun
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import Recipe


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
