"""What a run takes over from another one: its vocabulary, its weights, and at least the shape of its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from qknorm.data.prepared import Prepared
from qknorm.data.subwords import Subwords
from qknorm.errors import InputError
from qknorm.models.growth import grown
from qknorm.models.layers import Embedding
from qknorm.models.translator import TranslatorModel
from qknorm.runs.recipe import ModelRecipe, Recipe, checked, merged
from qknorm.runs.translator_run import TranslatorRun
from qknorm.training.planner import Shape
from qknorm.training.sets import prepared_text

_SIZE = tuple(field.name for field in fields(Shape))
_GROWING = (*_SIZE, "position_dim")
_KIND = ("norm", "placement", "fix_norm", "qk_norm")


def as_child(recipe: Recipe) -> Recipe:
    """The recipe with what its parent decides: how text becomes pieces, the kind of the model, and its least size."""
    if recipe.parent is None:
        return recipe
    parent = TranslatorRun.open(Path(recipe.parent)).recipe
    given, before = recipe.model_dump(exclude_unset=True), parent.model.model_dump()
    asked = given.get("model", {})
    model = {key: before[key] for key in _KIND} | _grown(parent.model, asked)
    for key, value in asked.items():
        if key in _KIND and value != model[key]:
            raise InputError(f"{recipe.parent} has {key}={model[key]}, and what goes on from it has the same")
        if key in _SIZE and value != model[key]:
            raise InputError(
                f"{recipe.parent} has {key}={before[key]}, and cannot go on with {key}={value}: "
                + _how_it_grows(parent.model)
            )
    if "scheme" in given["data"] and recipe.data.scheme != parent.data.scheme:
        kinds = {"words": "tokenised text", "raw": "text as people write it"}
        raise InputError(
            f"{recipe.parent} learned from {kinds[parent.data.scheme]}, and this is {kinds[recipe.data.scheme]}: "
            "bring it to the same form, or train without a parent"
        )
    if given["data"].setdefault("keep", parent.data.keep) != parent.data.keep:  # its vocabulary has signs or has none
        raise InputError(f"{recipe.parent} has keep={parent.data.keep}, and what goes on from it has the same")
    if recipe.minutes is not None:  # the plan may want more
        model = {key: value for key, value in model.items() if key not in _GROWING or key in asked}
    return checked(Recipe, merged(given, {"model": model}), recipe.name)


def shape_of(model: ModelRecipe) -> Shape:
    return Shape(**model.model_dump(include=set(_SIZE)))


def grown_by_plan(model: ModelRecipe, planned: Shape, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The keys of a model that grows if a plan has a larger one; and to what is asked for, in any case."""
    is_larger = planned.weights > shape_of(model).weights
    return _grown(model, {**(asdict(planned) if is_larger else {}), **(asked or {})})


def _grown(model: ModelRecipe, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a model that has grown to as much of what is wanted as it can."""
    growing = _SIZE if model.placement == "pre" else ("feed_forward",)  # a norm after a sum has no identity
    before = shape_of(model)
    shape = before.grown(replace(before, **{key: wanted[key] for key in growing if key in wanted}))
    narrow = before.dim if shape.dim > before.dim else None
    return {**asdict(shape), "position_dim": model.position_dim or narrow}


def _how_it_grows(model: ModelRecipe) -> str:
    if model.placement == "post":
        return "with placement=post only feed_forward can grow"
    return f"a model can only grow, with heads as wide as they are (dim a multiple of {model.dim // model.heads})"


def vocabulary_file(recipe: Recipe) -> Path | None:
    """The vocabulary of the parent, if there is one."""
    return None if recipe.parent is None else TranslatorRun(Path(recipe.parent)).tokenizer_file


def doubts_about_parent(folder: Path, prepared: Prepared) -> Iterator[str]:
    """What looks wrong with a parent: that it has learned what its child is tested on."""
    parent = TranslatorRun.open(folder)
    try:
        texts = prepared_text(parent.recipe.data, vocabulary=parent.tokenizer_file).texts
    except (InputError, OSError):
        yield f"the text that {folder} learned from is not there any more: nobody knows whether dev and test were in it"
        return
    learned = {line for text in texts for side in (text.train.sources, text.train.targets) for line in side}
    for direction in prepared.directions:
        for name, pairs in direction.held_out.items():
            known = sum(source in learned for source in pairs.sources)
            if known:
                yield (
                    f"{folder} has learned from {known:,} of {len(pairs):,} sentences of the {name} set: "
                    "its scores promise too much"
                )


@torch.no_grad()
def take_over(model: TranslatorModel, subwords: Subwords, folder: Path) -> None:
    """Let a model begin with the weights of a run. A language that is new begins as the one in its place."""
    parent = TranslatorRun.open(folder)
    other = parent.make_model()
    if parent.checkpoints.load_best(other) is None:
        raise InputError(f"{folder} has no whole checkpoint to go on from")
    rows = {code: number for way in other.directions for code, number in way.languages}
    usual = [number for _, number in other.directions[0].languages]
    languages = [0] * len(model.languages)
    for way in model.directions:
        for (code, number), in_its_place in zip(way.languages, usual, strict=True):
            languages[number] = rows.get(code, in_its_place)
    weights = other.state_dict() | {"languages": other.languages[languages]}
    model.load_state_dict(grown(weights, model))
    _spell_further_pieces(model.embedding, subwords, parent.vocabulary_of(parent.parts))


def _spell_further_pieces(embedding: Embedding, subwords: Subwords, known: Subwords) -> None:
    """Pieces that the parent had not begin as the mean of those that it spelled them with, if it could."""
    for number in range(len(known), len(subwords)):
        if parts := known.spelling(subwords.pieces[number]):
            embedding.weight[number] = embedding.weight[parts].mean(0)
            embedding.output_bias[number] = embedding.output_bias[parts].mean()
