from __future__ import annotations

from qknorm.experiments.report.words import attention, counted, heading
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import ModelRecipe


def test_few_systems_are_named_and_many_are_a_folder() -> None:
    assert heading(["a", "b", "c"], "runs") == "a, b and c"
    assert heading(["a"], "runs") == "a"
    assert heading(["a", "b", "c", "d"], "runs") == "runs"


def test_small_numbers_are_words() -> None:
    assert counted(1, "translator") == "One translator"
    assert counted(28_995, "pair") == "28,995 pairs"


def test_attention_is_described_by_its_norm() -> None:
    assert attention(ModelRecipe(qk_norm=LpRecipe(p=3.0))) == "queries and keys normalised, p = 3"
    assert attention(ModelRecipe.model_validate({"qk_norm": "none"})) == "plain scaled dot products"
