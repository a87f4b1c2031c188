"""The run folder of a language model: what another command needs to use it."""

from __future__ import annotations

from pathlib import Path

from qknorm.attention.scale import comparable_scale, henry_scale
from qknorm.data.characters import Characters
from qknorm.errors import InputError
from qknorm.models.gpt import GPTConfig
from qknorm.runs.language_recipe import GPTRecipe, LanguageRecipe, load_any_recipe
from qknorm.runs.run import Run


def recipe_of(folder: Path) -> LanguageRecipe:
    """The recipe of a run of a language model; an InputError if the folder is none."""
    recipe = load_any_recipe(Run.open(folder).folder / "recipe.yaml")
    if not isinstance(recipe, LanguageRecipe):
        raise InputError(f"{folder} holds a translator, not a language model; try: qknorm translate {folder}")
    return recipe


def gpt_config(model: GPTRecipe, vocabulary: int) -> GPTConfig:
    """The model that a recipe describes, with the start of α as a number."""
    settings = model.model_dump(exclude={"start", "scale_init"}) | {"vocabulary": vocabulary}
    if model.qk_norm != "lp":
        settings |= {"qk_norm": None if model.qk_norm == "none" else model.qk_norm, "p": 2.0}
        return GPTConfig(**settings)
    scale = henry_scale(model.context) if model.scale_init == "henry" else model.scale_init
    if model.start == "comparable":
        scale = comparable_scale(model.p, model.dim // model.heads, scale)
    return GPTConfig(**settings, scale_init=scale)


def load_characters(folder: Path) -> Characters:
    return Characters.load(folder / "characters.json")
