"""The run folder: everything another command needs, movable to another machine.

runs/NAME/  recipe.yaml  corpus.json  dropped.tsv  tokenizer.json  pairs.json  metrics.jsonl
            checkpoints/  test/{source.txt, references.txt, hypotheses.txt, scores.json}, by pair if there are several
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from qknorm.data.subwords import Subwords
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.models.translator import LanguagePair, TranslatorConfig, TranslatorModel
from qknorm.runs.recipe import ModelRecipe, Recipe, load_recipe, read_recipe


@dataclass(frozen=True)
class PairParts:
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
    pairs: list[PairParts]

    def languages(self) -> list[str]:
        """The codes in the order of their vectors."""
        return list(dict.fromkeys(code for pair in self.pairs for code in (pair.source, pair.target)))


class Run:
    """A run folder on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path) -> Run:
        """An existing run; an InputError if the folder is none."""
        if not (folder / "recipe.yaml").is_file():
            raise InputError(f"{folder} is not a run folder: there is no recipe.yaml in it")
        return cls(folder)

    @property
    def recipe(self) -> Recipe:
        return load_recipe(self.folder / "recipe.yaml")

    @property
    def subwords(self) -> Subwords:
        return Subwords.load(self.folder / "tokenizer.json")

    def longest_source(self, pair: int) -> int | None:
        """Pieces of the longest source sentence in training; None in a run of an earlier version."""
        try:
            about = json.loads((self.folder / "corpus.json").read_text(encoding="utf-8"))
            longest: int | None = about["pairs"][pair].get("longest_source")
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{self.folder / 'corpus.json'} cannot be used: {error!r}") from None
        return longest

    @property
    def parts(self) -> ModelParts:
        try:
            content = json.loads((self.folder / "pairs.json").read_text())
            pairs = [PairParts(**pair) for pair in content.pop("pairs")]
            return ModelParts(**content, pairs=pairs)
        except FileNotFoundError:
            if read_recipe(self.folder / "recipe.yaml").get("task") == "language":
                raise InputError(f"{self.folder} is a language model; try: qknorm generate {self.folder}") from None
            raise InputError(f"{self.folder} is not a run folder: there is no pairs.json in it") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.folder / 'pairs.json'} cannot be used: {error!r}") from None

    def save_parts(self, parts: ModelParts) -> None:
        with replacing(self.folder / "pairs.json") as file:
            file.write(json.dumps(asdict(parts)).encode())

    def pair_number(self, name: str | None) -> int:
        """The number of a pair such as en-gl; None for that of a run with one pair."""
        names = [pair.name for pair in self.parts.pairs]
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
            raise InputError(f"{self.folder / 'tokenizer.json'} is the vocabulary of another run")
        return make_model(recipe, parts, pieces)

    def vocabulary_digest(self) -> str:
        return hashlib.sha256((self.folder / "tokenizer.json").read_bytes()).hexdigest()


def make_model(recipe: Recipe, parts: ModelParts, pieces: int) -> TranslatorModel:
    """The model of a recipe with fresh weights."""
    numbers = {code: number for number, code in enumerate(parts.languages())}
    pairs = [
        LanguagePair(numbers[pair.source], numbers[pair.target], _mask(pair.target_pieces, pieces))
        for pair in parts.pairs
    ]
    return TranslatorModel(_config(recipe.model, parts.scale_init, recipe.training.label_smoothing), pairs)


def _mask(target_pieces: list[int], pieces: int) -> torch.Tensor:
    mask = torch.zeros(pieces, dtype=torch.bool)
    mask[target_pieces] = True
    return mask


def _config(model: ModelRecipe, scale_init: float | None, label_smoothing: float) -> TranslatorConfig:
    settings = model.model_dump(exclude={"scale_percentile", "embedding_init"})
    settings |= {"scale_init": scale_init, "label_smoothing": label_smoothing}
    return TranslatorConfig(**settings)
