from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from qknorm.attention.scale import comparable_scale, henry_scale
from qknorm.errors import InputError
from qknorm.experiments.cells import Cell
from qknorm.experiments.plan import Plan
from qknorm.experiments.spanned import plan_sweep
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.language_run import scale_start
from qknorm.runs.recipe import Recipe
from tests.sweeps import TINY, TRANSLATORS

RECIPE = Path(__file__).parents[2] / "recipes" / "lp-shakespeare.yaml"


def runs_of(plan: Plan) -> list[Cell]:
    """Some choices share one."""
    return list({cell.name: cell for cell in plan.cells}.values())


@pytest.mark.parametrize(
    ("name", "size", "choices", "runs", "shape", "training"),
    [
        ("lp-shakespeare", "smoke", 45, 42, (24, 6, 2, 32), (8, 120)),
        ("lp-shakespeare", "small", 150, 140, (96, 6, 6, 64), (12, 700)),
        ("lp-shakespeare", "medium", 21, 18, (256, 4, 4, 128), (32, 4000)),
        ("lp-shakespeare", "paper", 150, 140, (384, 6, 6, 256), (64, 5000)),
        ("lp-heads", "small", 48, 42, (128, 2, 3, 128), (16, 2000)),
        ("lp-heads", "medium", 48, 42, (256, 4, 4, 128), (32, 4000)),
        ("learning-rates", "small", 96, 96, (128, 2, 3, 64), (16, 1200)),
    ],
)
def test_the_sweeps_of_the_package_have_the_sizes_that_they_say(
    name: str, size: str, choices: int, runs: int, shape: tuple[int, ...], training: tuple[int, int]
) -> None:
    """Of seven p with two starts p = 2 has but one run; the shape is width, heads, layers and context."""
    plan = plan_sweep(RECIPE.with_name(f"{name}.yaml"), size)
    assert plan.experiment.name == f"{name}-{size}"
    assert (len(plan.cells), len(runs_of(plan))) == (choices, runs)
    recipes = [cell.recipe for cell in plan.cells if isinstance(cell.recipe, LanguageRecipe)]
    models, trainings = [recipe.model for recipe in recipes], [recipe.training for recipe in recipes]
    assert {(model.dim, model.heads, model.layers, model.context) for model in models} == {shape}
    assert {(recipe.batch, recipe.iterations) for recipe in trainings} == {training}
    folds = [cell.settings.get("fold", 0) for cell in plan.cells]
    assert folds == sorted(folds)
    assert plan.experiment.about.shrunk.startswith(f"{size.upper()} SIZE: ")
    assert plan.experiment.about.paper == ("lopez-rubio-2026" if name.startswith("lp") else None)


def test_choices_that_come_to_the_same_share_a_run(folder: Path) -> None:
    """No other two do: each p from each start is a training of its own."""
    changes = ["p=[2, 3]", "start=[same, comparable, 3]", "folds=null"]
    choices = {
        (cell.settings.get("p"), cell.settings.get("start")): cell
        for cell in plan_sweep(folder / "tiny.yaml", None, changes).cells
    }
    assert choices[2, "comparable"].name == choices[2, "same"].name == "p-2_start-same"
    assert choices[3, 3].name == choices[3, "same"].name == "p-3_start-same"
    assert choices[2, "comparable"].settings["start"] == "comparable", "each has its own row"
    assert len({cell.name for cell in choices.values()}) == len(choices) - 2
    for cell in choices.values():
        assert cell.recipe.name == cell.name


def test_without_normalisation_nothing_of_it_tells_runs_apart(folder: Path) -> None:
    changes = ["p=[2, 3]", "start=same", "scale_init=[henry, 4]", "qk_norm=[lp, none]", "folds=null"]
    planned = plan_sweep(folder / "tiny.yaml", None, changes)
    assert len(planned.cells) == 9, "eight choices and the recipe's own baseline"
    assert len([cell for cell in runs_of(planned) if cell.settings["qk_norm"] == "lp"]) == 4
    assert len([cell for cell in runs_of(planned) if cell.settings["qk_norm"] == "none"]) == 1


def test_lists_may_be_given_on_the_command_line(folder: Path) -> None:
    planned = plan_sweep(folder / "tiny.yaml", None, ["p=[1, .inf]", "seed=[1,2,3]", "folds=null"])
    assert [cell.name for cell in planned.cells] == [
        f"{system}_seed-{seed}" for seed in (1, 2, 3) for system in ("p-1", "p-inf", "qk_norm-none")
    ]


def test_baselines_span_the_lists_that_are_not_of_the_model(folder: Path) -> None:
    recipe = TINY.replace("{qk_norm: none}", "{qk_norm: none}, {optimizer: adam}")
    (folder / "tiny.yaml").write_text(recipe)
    planned = plan_sweep(folder / "tiny.yaml", None, ["optimizer=[adamw, muon]", "folds=null"])
    assert [cell.name for cell in planned.cells] == [
        *(f"p-{p}_optimizer-{optimizer}" for p in (2, 3) for optimizer in ("adamw", "muon")),
        "qk_norm-none_optimizer-adamw",
        "qk_norm-none_optimizer-muon",
        "optimizer-adam",
    ]


def test_the_default_plan_is_compared_with_and_without_normalisation_at_each_rate() -> None:
    recipes = [cell.recipe for cell in plan_sweep(RECIPE.with_name("better-start.yaml")).cells]
    translators = [recipe for recipe in recipes if isinstance(recipe, Recipe)]
    assert len(translators) == 2 * 2 * 4
    assert {(recipe.model.qk_norm.kind, recipe.model.norm) for recipe in translators} == {
        ("none", "scale"),
        ("lp", "layer"),
    }
    assert {recipe.minutes for recipe in translators} == {30}


def test_p_2_can_start_as_sharp_as_p_4_does() -> None:
    cells = {cell.name: cell.recipe for cell in plan_sweep(RECIPE.with_name("lp-heads.yaml"), "small").cells}
    recipes = [cells[f"p-{p}_start-{start}_peak-0.001_fold-00"] for p, start in ((4, "same"), (2, "4"))]
    same, sharp = (scale_start(recipe.model) for recipe in recipes if isinstance(recipe, LanguageRecipe))
    assert same == pytest.approx(henry_scale(128))
    assert sharp is not None
    assert comparable_scale(4, 64, sharp) == pytest.approx(same)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("p=[]", "model.p is an empty list"),
        ("p=[0.5, 2]", "model.p: Input should be greater than or equal to 1"),
        ("p=[2, 2]", "would run twice"),
        ("model.q=[1]", "there is no key model.q"),
        ("heads=[2, 3]", "must divide"),
        ("start=sharp", "model.start"),
        ("start=0.5", "must be same, comparable or a p from 1 on"),
        ("data.folds=1", "data.folds"),
        ("iteratons=3", "there is no key iteratons"),
    ],
)
def test_a_wrong_sweep_is_refused_before_any_run(folder: Path, change: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_sweep(folder / "tiny.yaml", None, [change])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: language", "task: translation", "there is no key data.file"),
        ("baselines:", "baseline:", "there is no key baseline"),
        ("[{qk_norm: none}]", "[{qk_nrm: none}]", "there is no key qk_nrm"),
        ("[{qk_norm: none}]", "[none]", "a baseline is keys and values"),
        ("name: tiny", "size: small", "has no size 'small'"),
        ("name: tiny", "shows: losses", "tiny.yaml: shows must be one of p, rates, scores, .*, not 'losses'"),
        ("name: tiny", "shows: data", "shows: data is about the rows of a table"),
        ("name: tiny", "paper: henry", "paper must be one of henry-2020, lopez-rubio-2026, not 'henry'"),
        ("name: tiny", "name: 3", "name must be text, not 3"),
    ],
)
def test_a_wrong_file_is_explained(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "tiny.yaml").write_text(TINY.replace(old, new))
    with pytest.raises(InputError, match=message):
        plan_sweep(folder / "tiny.yaml")


def test_scores_can_be_shown_of_every_task_and_losses_of_language_models_alone(folder: Path) -> None:
    for text, shows, is_possible in (
        *((TRANSLATORS, shows, False) for shows in ("p", "rates")),
        *((text, "scores", True) for text in (TINY, TRANSLATORS)),
    ):
        (folder / "any.yaml").write_text(f"{text}shows: {shows}\n")
        told = f"any.yaml: shows: {shows} is about losses of language models, .* scores"
        with nullcontext() if is_possible else pytest.raises(InputError, match=told):
            assert plan_sweep(folder / "any.yaml").experiment.about.shows == shows
