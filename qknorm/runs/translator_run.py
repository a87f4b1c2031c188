"""The run folder of a translator.

runs/NAME/  beside what every run has: tokenizer.json  pairs.json  dropped.tsv  confidence.json
            of several language pairs: dropped-en-gl.tsv and so on
"""

from __future__ import annotations

from pathlib import Path

import torch

from qknorm.data import prepared
from qknorm.data.corpus_report import CorpusReport
from qknorm.data.subwords import Subwords
from qknorm.errors import InputError
from qknorm.models.translator import TranslatorConfig, TranslatorModel
from qknorm.runs.contents import Calibration, Calibrations, ModelParts
from qknorm.runs.recipe import ModelRecipe, Recipe
from qknorm.runs.run import InFolder, Run


class TranslatorRun(Run):
    """A translator on disk."""

    pairs_file = InFolder("pairs.json")
    """What the model is made of besides its weights."""
    tokenizer_file = InFolder(prepared.TOKENIZER)

    confidence_file = InFolder("confidence.json")
    """What can be expected of translations. Runs that have not ended have none, nor have those of earlier versions."""
    parent_tokenizer_file = InFolder("parent-tokenizer.json")
    """The vocabulary of the run that this one goes on from."""

    @property
    def recipe(self) -> Recipe:
        return self.recipe_of(Recipe)

    @property
    def earlier_sets(self) -> Path | None:
        """Where a run of an earlier version keeps the sets that it split off somebody's own files."""
        return self.folder / "data" if self.corpus.pairs[0].split_off is None else None

    def dropped_file(self, direction: str = "") -> Path:
        """The lines that were not learned from, of the only language pair or of one of several such as en-gl."""
        name = Path(prepared.DROPPED)
        return self.folder / (name.with_stem(f"{name.stem}-{direction}") if direction else name)

    def vocabulary_of(self, parts: ModelParts) -> Subwords:
        """The vocabulary that the weights were learned with."""
        return Subwords.load(self.tokenizer_file, parts.vocabulary)

    @property
    def taken_vocabulary(self) -> Path | None:
        """The vocabulary that its own is an extension of, if it goes on from another run."""
        if self.recipe.parent is None:
            return None
        return self.parent_tokenizer_file if self.parent_tokenizer_file.exists() else self.tokenizer_file

    @property
    def corpus(self) -> CorpusReport:
        """What is known about the text."""
        return CorpusReport.of_file(self.corpus_file)

    @property
    def parts(self) -> ModelParts:
        if not self.pairs_file.is_file():
            raise InputError(f"{self.folder} is not a run folder: there is no {self.pairs_file.name} in it")
        return ModelParts.of_file(self.pairs_file)

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """By the names of language pairs."""
        file = self.confidence_file
        return Calibrations.of_file(file).by_direction if file.exists() else {}

    def make_model(self) -> TranslatorModel:
        """The model of this run with fresh weights."""
        recipe, parts = self.recipe, self.parts
        return make_model(recipe, parts, len(self.vocabulary_of(parts)))


def make_model(recipe: Recipe, parts: ModelParts, pieces: int) -> TranslatorModel:
    """The model of a recipe with fresh weights."""
    target_pieces = {
        (direction.source, direction.target): _mask(direction.target_pieces, pieces) for direction in parts.directions
    }
    return TranslatorModel(_config(recipe.model, parts.scale_init, recipe.training.label_smoothing), target_pieces)


def _mask(target_pieces: list[int], pieces: int) -> torch.Tensor:
    mask = torch.zeros(pieces, dtype=torch.bool)
    mask[target_pieces] = True
    return mask


def _config(model: ModelRecipe, scale_init: float | None, label_smoothing: float) -> TranslatorConfig:
    settings = model.model_dump(exclude={"qk_norm", "scale_percentile", "embedding_init"})
    return TranslatorConfig(**settings, qk_norm=model.qk_norm.starting_at(scale_init), label_smoothing=label_smoothing)
