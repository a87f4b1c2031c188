"""The recipe of a language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from qknorm.models.gpt import GPTConfig
from qknorm.optimisation.optimisers import OPTIMISERS
from qknorm.runs.choices import OneOf
from qknorm.runs.norm_recipe import LpRecipe, NormRecipe, WithNorm
from qknorm.runs.recipe import AnyRecipe, AnyTraining
from qknorm.runs.recipe_part import RecipePart


class TextRecipe(RecipePart):
    """Where the text is, and what of it is held out."""

    corpus: str | None = None
    """A named text (`qknorm data list`), such as tinyshakespeare; or else a file below."""
    file: str | None = None
    """A text file in UTF-8."""
    held_out: float = Field(0.1, gt=0, lt=1)
    """The last part of the text, for validation, where there are no folds."""
    folds: int | None = Field(None, ge=2)
    """The text is cut into this many blocks, each held out in turn by `qknorm sweep`."""
    fold: int | None = Field(None, ge=0)
    """The block that is held out, from 0."""

    @model_validator(mode="after")
    def _possible(self) -> TextRecipe:
        if (self.corpus is None) == (self.file is None):
            raise ValueError("give either data.corpus or data.file")
        if self.fold is not None and (self.folds is None or self.fold >= self.folds):
            raise ValueError(f"data.fold ({self.fold}) must be below data.folds ({self.folds})")
        return self


class GPTRecipe(WithNorm):
    """The shape of the language model; the defaults are the second paper's."""

    layers: int = Field(GPTConfig.layers, ge=1)
    """Blocks of attention and feed-forward."""
    heads: int = Field(GPTConfig.heads, ge=1)
    """Attention heads; they must divide dim."""
    dim: int = Field(GPTConfig.dim, ge=1)
    """Width of the model; the feed-forward layers are four times as wide."""
    context: int = Field(GPTConfig.context, ge=2)
    """Characters that the model sees."""
    dropout: float = Field(GPTConfig.dropout, ge=0, lt=1)
    """Of the input, the attention weights and each sublayer's output."""
    bias: bool = GPTConfig.bias
    """Biases in the linear maps and norms."""
    qk_norm: NormRecipe = LpRecipe()
    """Queries and keys by their Lp norm, by RMSNorm, by LayerNorm, or plain scaled dot products."""

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        if content.get("learned_p", "no") != "no":
            raise ValueError("model.learned_p was an experiment and is gone: leave it out, and train with a fixed p")
        return super().as_written_now({key: value for key, value in content.items() if key != "learned_p"})

    @model_validator(mode="after")
    def _possible(self) -> GPTRecipe:
        if self.dim % self.heads:
            raise ValueError(f"model.heads ({self.heads}) must divide model.dim ({self.dim})")
        return self


class LanguageTrainingRecipe(AnyTraining):
    """How it is trained; the defaults are nanoGPT's for characters."""

    batch: int = Field(64, ge=1)
    """Windows per update; several processes share them."""
    iterations: int = Field(5000, ge=1)
    """Updates."""
    peak: float = Field(1e-3, gt=0)
    """The highest learning rate."""
    final: float = Field(1e-4, ge=0)
    """The last one, at the end of the cosine."""
    warmup: int = Field(100, ge=1)
    """Updates until the peak."""
    optimizer: Annotated[str, OneOf(OPTIMISERS)] = "adamw"
    """What turns gradients into updates."""
    beta2: float = Field(0.99, gt=0, lt=1)
    """The optimiser's memory of squared gradients."""
    weight_decay: float = Field(0.1, ge=0)
    """Of matrices; never of g, norms and biases."""
    validate_every: int = Field(250, ge=1)
    """Updates between validations; each saves a checkpoint."""
    validation_windows: int | None = Field(None, ge=1)
    """Validation reads at most this many windows of the held-out text, evenly spread; without it, all."""


class LanguageRecipe(AnyRecipe):
    """One run of a language model."""

    title: ClassVar[str] = "Language models"
    product: ClassVar[str] = "a language model"
    command: ClassVar[str] = "generate"

    task: Literal["language"] = "language"
    """What is learned; `translation` is a recipe of another kind."""
    data: TextRecipe
    model: GPTRecipe = GPTRecipe()
    training: LanguageTrainingRecipe = LanguageTrainingRecipe()
