"""The run folder: everything another command needs, movable to another machine.

runs/NAME/  recipe.yaml  corpus.json  dropped.tsv  tokenizer.json  pairs.json  metrics.jsonl
            checkpoints/  test/{source.txt, references.txt, hypotheses.txt, scores.json}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from qknorm.data.subwords import Subwords
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.models.translator import LanguagePair, TranslatorConfig, TranslatorModel
from qknorm.training.recipe import ModelRecipe, Recipe, load_recipe


@dataclass(frozen=True)
class ModelParts:
    """What a model is made of besides its weights: in pairs.json."""

    target_pieces: list[int]
    """The numbers of the pieces that the target language uses."""
    scale_init: float | None
    """Where g started."""


class Run:
    """A run folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run; an InputError if the folder is none."""
        if not (folder / "recipe.yaml").is_file():
            raise InputError(f"{folder} is no run folder: there is no recipe.yaml in it")
        return cls(folder)

    @property
    def recipe(self) -> Recipe:
        return load_recipe(self.folder / "recipe.yaml")

    @property
    def subwords(self) -> Subwords:
        return Subwords.load(self.folder / "tokenizer.json")

    @property
    def longest_source(self) -> int | None:
        """Pieces of the longest source sentence in training; None in a run of an earlier version."""
        try:
            about = json.loads((self.folder / "corpus.json").read_text(encoding="utf-8"))
            longest: int | None = about["pairs"][0].get("longest_source")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{self.folder / 'corpus.json'} cannot be used: {error!r}") from None
        return longest

    def save_parts(self, parts: ModelParts) -> None:
        with replacing(self.folder / "pairs.json") as file:
            file.write(json.dumps(parts.__dict__).encode())

    def make_model(self) -> TranslatorModel:
        """The model of this run with fresh weights."""
        try:
            parts = ModelParts(**json.loads((self.folder / "pairs.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{self.folder / 'pairs.json'} cannot be used: {error}") from None
        used = torch.zeros(len(self.subwords), dtype=torch.bool)
        if parts.target_pieces and max(parts.target_pieces) >= len(used):
            raise InputError(f"{self.folder / 'tokenizer.json'} is the vocabulary of another run")
        used[parts.target_pieces] = True
        recipe = self.recipe
        config = _config(recipe.model, parts.scale_init, recipe.training.label_smoothing)
        return TranslatorModel(config, [LanguagePair(0, 1, used)])


def _config(model: ModelRecipe, scale_init: float | None, label_smoothing: float) -> TranslatorConfig:
    settings = model.model_dump() | {"scale_init": scale_init, "label_smoothing": label_smoothing}
    return TranslatorConfig(**settings)
