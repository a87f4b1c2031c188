from __future__ import annotations

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


@pytest.mark.parametrize(("size", "folds"), [("smoke", 3), ("small", 10), ("paper", 10)])
def test_the_second_papers_sweep_in_every_size(size: str, folds: int) -> None:
    """Seven p with two starts, of which p = 2 has but one run, and no normalisation."""
    planned = plan_sweep(RECIPE, size)
    assert planned.experiment.name == f"lp-shakespeare-{size}"
    assert len(planned.cells) == 15 * folds
    assert len(runs_of(planned)) == len({cell.name for cell in runs_of(planned)}) == 14 * folds
    recipes = [cell.recipe for cell in planned.cells if isinstance(cell.recipe, LanguageRecipe)]
    assert {recipe.model.heads for recipe in recipes} == {6}
    assert len([recipe for recipe in recipes if recipe.model.qk_norm.kind == "none"]) == folds
    assert [cell.settings["fold"] for cell in planned.cells] == sorted(cell.settings["fold"] for cell in planned.cells)
    layers = 2 if size == "smoke" else 6
    assert {recipe.model.layers for recipe in recipes} == {layers}


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


def test_the_paper_s_size_is_that_of_the_paper() -> None:
    recipe = plan_sweep(RECIPE, "paper").cells[0].recipe
    assert isinstance(recipe, LanguageRecipe)
    assert (recipe.model.dim, recipe.model.context, recipe.model.dropout) == (384, 256, 0.2)
    assert (recipe.training.batch, recipe.training.iterations) == (64, 5000)


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


@pytest.mark.parametrize(("name", "runs"), [("lp-heads", 42), ("learning-rates", 96)])
def test_the_small_sizes_of_further_sweeps_have_heads_of_64(name: str, runs: int) -> None:
    planned = plan_sweep(RECIPE.with_name(f"{name}.yaml"), "small")
    recipes = [cell.recipe for cell in runs_of(planned) if isinstance(cell.recipe, LanguageRecipe)]
    assert len(recipes) == runs
    assert {recipe.model.dim // recipe.model.heads for recipe in recipes} == {64}


def test_the_default_plan_is_compared_with_and_without_normalisation_at_each_rate() -> None:
    recipes = [cell.recipe for cell in plan_sweep(RECIPE.with_name("better-start.yaml")).cells]
    translators = [recipe for recipe in recipes if isinstance(recipe, Recipe)]
    assert len(translators) == 2 * 2 * 4
    assert {(recipe.model.qk_norm.kind, recipe.model.norm) for recipe in translators} == {
        ("none", "scale"),
        ("lp", "layer"),
    }
    assert {recipe.minutes for recipe in translators} == {30}


@pytest.mark.parametrize(("name", "runs"), [("lp-heads", 42), ("lp-shakespeare", 18)])
def test_the_medium_size_has_the_paper_s_heads_three_p_and_three_folds(name: str, runs: int) -> None:
    planned = plan_sweep(RECIPE.with_name(f"{name}.yaml"), "medium")
    assert len(runs_of(planned)) == runs
    assert {cell.settings["p"] for cell in planned.cells if "p" in cell.settings} == {2, 3, 4}
    assert {cell.settings["fold"] for cell in planned.cells} == {0, 1, 2}
    recipes = [cell.recipe for cell in planned.cells if isinstance(cell.recipe, LanguageRecipe)]
    models, trainings = [recipe.model for recipe in recipes], [recipe.training for recipe in recipes]
    shapes = {(model.dim, model.heads, model.layers, model.context, model.dropout) for model in models}
    assert shapes == {(256, 4, 4, 128, 0.1)}
    assert {(training.batch, training.iterations) for training in trainings} == {(32, 4000)}
    assert planned.experiment.about.shrunk.startswith("MEDIUM SIZE: ")


@pytest.mark.parametrize("name", ["lp-heads", "lp-shakespeare"])
def test_the_second_paper_s_sweeps_cite_it(name: str) -> None:
    assert plan_sweep(RECIPE.with_name(f"{name}.yaml"), "small").experiment.about.paper == "lopez-rubio-2026"


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
        (
            "name: tiny",
            "shows: losses",
            "tiny.yaml: shows must be one of p, rates, scores, .*, not 'losses'",
        ),
        ("name: tiny", "shows: data", "shows: data is about the rows of a table"),
        ("name: tiny", "paper: henry", "paper must be one of henry-2020, lopez-rubio-2026, not 'henry'"),
        ("name: tiny", "name: 3", "name must be text, not 3"),
    ],
)
def test_a_wrong_file_is_explained(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "tiny.yaml").write_text(TINY.replace(old, new))
    with pytest.raises(InputError, match=message):
        plan_sweep(folder / "tiny.yaml")


@pytest.mark.parametrize("shows", ["p", "rates"])
def test_a_page_that_its_task_cannot_fill_is_refused_before_any_run(folder: Path, shows: str) -> None:
    (folder / "translators.yaml").write_text(f"{TRANSLATORS}shows: {shows}\n")
    with pytest.raises(
        InputError, match=f"translators.yaml: shows: {shows} is about losses of language models, .* scores"
    ):
        plan_sweep(folder / "translators.yaml")


def test_scores_can_be_shown_of_every_task(folder: Path) -> None:
    (folder / "translators.yaml").write_text(f"{TRANSLATORS}shows: scores\n")
    (folder / "tiny.yaml").write_text(f"{TINY}shows: scores\n")
    assert [plan_sweep(folder / name).experiment.about.shows for name in ("translators.yaml", "tiny.yaml")] == [
        "scores",
        "scores",
    ]
