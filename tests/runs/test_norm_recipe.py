from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qknorm.attention.norms import LpKind, RMSKind
from qknorm.errors import InputError
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import Recipe, checked, load_recipe, make_recipe, merged, refuse_changes, save_recipe

BASE = {"data": {"corpus": "phrasebook-en-gl"}}


def recipe(model: dict[str, Any], *changes: str) -> Recipe:
    return make_recipe({**BASE, "model": model}, changes, "mine.yaml")


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ({"qk_norm": "lp", "p": 3, "scale_init": 5}, []),
        ({"qk_norm": {"kind": "lp", "p": 3, "scale_init": 5}}, []),
        ({"qk_norm": {"p": 3}, "scale_init": 5}, []),
        ({"p": 2, "scale_init": 5}, ["p=3"]),
        ({"qk_norm": {"p": 2, "scale_init": 5}}, ["p=3"]),
        ({"p": 2, "scale_init": 5}, ["qk_norm={kind: lp, p: 3}"]),
        ({"qk_norm": "none", "p": 3}, ["scale_init=5", "model.qk_norm=lp"]),
    ],
    ids=str,
)
def test_options_of_lp_stand_inside_or_beside_it(model: dict[str, Any], changes: list[str]) -> None:
    written = recipe(model, *changes)
    assert written.model.qk_norm == LpRecipe(p=3, scale_init=5)
    assert checked(Recipe, merged(written.model_dump(), {"model": {"p": 4}}), "").model.qk_norm == LpRecipe(
        p=4, scale_init=5
    )


def test_other_kinds_have_options_of_their_own_and_those_of_lp_say_nothing() -> None:
    assert recipe({"qk_norm": "none", "p": 3}) == recipe({"qk_norm": {"kind": "none"}})
    assert recipe({"qk_norm": "rms"}).model.qk_norm.starting_at(None) == RMSKind()
    assert recipe({}, "qk_norm={kind: rms, eps: 0.5}").model.qk_norm.starting_at(None) == RMSKind(eps=0.5)


@pytest.mark.parametrize("norm", ["lp", "none", {"kind": "rms", "eps": 0.5}, {"kind": "lp", "p": float("inf")}])
def test_a_recipe_survives_the_file(tmp_path: Path, norm: Any) -> None:
    written = recipe({"qk_norm": norm}, "clip=.inf", f"seed={2**63 - 1}")
    save_recipe(written, tmp_path / "recipe.yaml")
    assert load_recipe(tmp_path / "recipe.yaml") == written
    assert ("qk_norm: none\n" in (tmp_path / "recipe.yaml").read_text()) == (norm == "none")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"p": 0.5}, "mine.yaml: model.p: Input should be greater than or equal to 1"),
        ({"qk_norm": {"p": 0.5}}, "mine.yaml: model.p: Input should be greater than or equal to 1"),
        ({"qk_norm": {"p": 3}, "p": 3}, "p is given twice, in qk_norm and beside it"),
        ({"qk_norm": {"scale_inti": 5}}, "there is no key model.scale_inti; the nearest is model.scale_init"),
        ({"qk_norm": "batch"}, "model.qk_norm: Input should be 'lp', 'rms', 'layer' or 'none' (given: batch)"),
        ({"qk_norm": ["lp"]}, "model.qk_norm: Input should be 'lp', 'rms', 'layer' or 'none' (given: ['lp'])"),
        ({"qk_norm": {"kind": "rms", "gain": 2}}, "gain cannot be set for qk_norm='rms'"),
        ({"qk_norm": {"kind": "rms", "eps": "small"}}, "model.qk_norm: "),
        ({"start": 0.5}, "model.start (0.5) must be same, comparable or a p from 1 on"),
        ({"scale_init": float("nan")}, "model.scale_init"),
    ],
    ids=str,
)
def test_a_norm_that_cannot_be_is_one_sentence(model: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        recipe(model)
    assert message in str(caught.value)


def test_g_is_learned_kept_or_left_out() -> None:
    assert LpRecipe(scale="learned").starting_at(5.0) == LpKind(scale_init=5.0)
    assert LpRecipe(scale="fixed").starting_at(5.0) == LpKind(scale_init=5.0, learn_scale=False)
    assert LpRecipe(scale="absent").starting_at(5.0) == LpKind(scale_init=1.0, learn_scale=False)


def test_a_run_with_another_norm_does_not_go_on() -> None:
    with pytest.raises(InputError, match=r"was begun with model.p=2.0, not 3.0"):
        refuse_changes(recipe({}), recipe({"p": 3}), Path("mine"))
