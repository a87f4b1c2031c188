"""The run folder of a translator.

runs/NAME/  beside what every run has: tokenizer.json  pairs.json  dropped.tsv
            of several language pairs: dropped-en-gl.tsv and so on
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from qknorm.data import prepared
from qknorm.data.pipeline import TextPipeline
from qknorm.data.subwords import Subwords
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.models.translator import Direction, TranslatorConfig, TranslatorModel
from qknorm.runs.recipe import ModelRecipe, Recipe
from qknorm.runs.run import Run


@dataclass(frozen=True)
class DirectionParts:
    """One language pair of a model."""

    source: str
    """The code of the language."""
    target: str
    target_pieces: list[int]
    """The numbers of the pieces that the target language uses."""

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


@dataclass(frozen=True)
class ModelParts:
    """What a model is made of besides its weights: in pairs.json."""

    scale_init: float | None
    """Where g started."""
    vocabulary: str
    """The digest of tokenizer.json: the weights mean nothing with another one."""
    corpus: str
    """The key of the prepared corpus: a run goes on with the same text."""
    directions: list[DirectionParts]

    def languages(self) -> list[str]:
        """The codes in the order of their vectors."""
        return list(
            dict.fromkeys(code for direction in self.directions for code in (direction.source, direction.target))
        )


class TranslatorRun(Run):
    """A translator on disk."""

    @property
    def recipe(self) -> Recipe:
        return self.recipe_of(Recipe)

    @property
    def tokenizer_file(self) -> Path:
        return self.folder / prepared.TOKENIZER

    @property
    def pairs_file(self) -> Path:
        """What the model is made of besides its weights."""
        return self.folder / "pairs.json"

    @property
    def data_folder(self) -> Path:
        """What a run of an earlier version keeps of what it split off somebody's own files."""
        return self.folder / "data"

    def dropped_file(self, direction: str = "") -> Path:
        """The lines that were not learned from, of the only language pair or of one of several such as en-gl."""
        name = Path(prepared.DROPPED)
        return self.folder / (name.with_stem(f"{name.stem}-{direction}") if direction else name)

    @property
    def subwords(self) -> Subwords:
        return Subwords.load(self.tokenizer_file)

    @property
    def pipeline(self) -> TextPipeline:
        """What is done to a line before this model reads it."""
        return TextPipeline(self.recipe.data.steps)

    def longest_source(self, direction: int) -> int | None:
        """Pieces of the longest source sentence in training; None in a run of an earlier version."""
        try:
            about = json.loads(self.corpus_file.read_text(encoding="utf-8"))
            longest: int | None = about["pairs"][direction].get("longest_source")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{self.corpus_file} cannot be used: {error!r}") from None
        return longest

    @property
    def parts(self) -> ModelParts:
        try:
            content = json.loads(self.pairs_file.read_text())
            directions = [DirectionParts(**direction) for direction in content.pop("pairs")]
            return ModelParts(**content, directions=directions)
        except FileNotFoundError:
            self.recipe_of(Recipe)  # what else would it be
            raise InputError(f"{self.folder} is not a run folder: there is no {self.pairs_file.name} in it") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.pairs_file} cannot be used: {error!r}") from None

    def save_parts(self, parts: ModelParts) -> None:
        with replacing(self.pairs_file) as file:
            content = asdict(parts)
            content["pairs"] = content.pop("directions")  # as the key was called in the first runs
            file.write(json.dumps(content).encode())

    def direction_number(self, name: str | None) -> int:
        """The number of a pair such as en-gl; None for that of a run with one pair."""
        names = [direction.name for direction in self.parts.directions]
        if name in names:
            return names.index(name)
        if name is None and len(names) == 1:
            return 0
        asked = "translates several language pairs" if name is None else f"does not translate {name}"
        raise InputError(f"{self.folder} {asked}; choose one with --pair (pair=): {', '.join(names)}")

    def make_model(self) -> TranslatorModel:
        """The model of this run with fresh weights."""
        parts, recipe, pieces = self.parts, self.recipe, len(self.subwords)
        if self.vocabulary_digest() != parts.vocabulary:
            raise InputError(f"{self.tokenizer_file} is the vocabulary of another run")
        return make_model(recipe, parts, pieces)

    def vocabulary_digest(self) -> str:
        return hashlib.sha256(self.tokenizer_file.read_bytes()).hexdigest()


def make_model(recipe: Recipe, parts: ModelParts, pieces: int) -> TranslatorModel:
    """The model of a recipe with fresh weights."""
    numbers = {code: number for number, code in enumerate(parts.languages())}
    directions = [
        Direction(numbers[direction.source], numbers[direction.target], _mask(direction.target_pieces, pieces))
        for direction in parts.directions
    ]
    return TranslatorModel(_config(recipe.model, parts.scale_init, recipe.training.label_smoothing), directions)


def _mask(target_pieces: list[int], pieces: int) -> torch.Tensor:
    mask = torch.zeros(pieces, dtype=torch.bool)
    mask[target_pieces] = True
    return mask


def _config(model: ModelRecipe, scale_init: float | None, label_smoothing: float) -> TranslatorConfig:
    settings = model.model_dump(exclude={"scale_percentile", "embedding_init"})
    settings |= {"scale_init": scale_init, "label_smoothing": label_smoothing}
    return TranslatorConfig(**settings)
