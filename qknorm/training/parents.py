"""What a run takes over from another one: its vocabulary, the shape of its model, and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch

from qknorm.data.prepared import Prepared
from qknorm.errors import InputError
from qknorm.models.translator import TranslatorModel
from qknorm.runs.recipe import Recipe, checked, merged
from qknorm.runs.translator_run import TranslatorRun
from qknorm.training.planner import Shape
from qknorm.training.sets import prepared_text

_SHAPE = (*(field.name for field in fields(Shape)), "norm", "placement", "fix_norm", "qk_norm")


def as_child(recipe: Recipe) -> Recipe:
    """The recipe with what its parent decides: how text becomes pieces, and the shape of the model."""
    if recipe.parent is None:
        return recipe
    parent = TranslatorRun.open(Path(recipe.parent)).recipe
    given = recipe.model_dump(exclude_unset=True)
    shape = {key: parent.model.model_dump()[key] for key in _SHAPE}
    for key, value in given.get("model", {}).items():
        if key in shape and value != shape[key]:
            raise InputError(f"{recipe.parent} has {key}={shape[key]}, and what goes on from it has the same")
    if "scheme" in given["data"] and recipe.data.scheme != parent.data.scheme:
        kinds = {"words": "tokenised text", "raw": "text as people write it"}
        raise InputError(
            f"{recipe.parent} learned from {kinds[parent.data.scheme]}, and this is {kinds[recipe.data.scheme]}: "
            "bring it to the same form, or train without a parent"
        )
    if given["data"].setdefault("keep", parent.data.keep) != parent.data.keep:  # its vocabulary has signs or has none
        raise InputError(f"{recipe.parent} has keep={parent.data.keep}, and what goes on from it has the same")
    return checked(Recipe, merged(given, {"model": shape}), recipe.name)


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
def take_over(model: TranslatorModel, folder: Path) -> None:
    """Let a model begin with the weights of a run. A language that is new begins as the one in its place."""
    parent = TranslatorRun.open(folder)
    other = parent.make_model()
    if parent.checkpoints.load_best(other) is None:
        raise InputError(f"{folder} has no whole checkpoint to go on from")
    rows = {code: number for way in other.directions for code, number in way.languages}
    usual = [number for _, number in other.directions[0].languages]
    languages = model.languages.clone()
    for way in model.directions:
        for (code, number), in_its_place in zip(way.languages, usual, strict=True):
            languages[number] = other.languages[rows.get(code, in_its_place)]
    model.load_state_dict(other.state_dict() | {"languages": languages})
