"""What the files of a run folder hold: one type each, for whoever writes a file and whoever reads it.

That of corpus.json lies where a corpus is made, in data/corpus_report.py.
"""

from __future__ import annotations

from statistics import fmean
from typing import Annotated, ClassVar

from pydantic import Field

from qknorm.data.jsonfiles import Stored, WithMeasures

PerHead = Annotated[list[float], Field(min_length=1)]
"""A number for each head of a layer."""


class LayerAttention(Stored):
    """How sharp and how spread out the attention of a layer is, as `qknorm.watch` sees it."""

    g: PerHead | None = None
    bound: PerHead | None
    """Of the logits; None where there is no such bound."""
    entropy: PerHead
    saturated: PerHead
    largest_logit: PerHead
    q_norm: PerHead | None = None
    k_norm: PerHead | None = None

    @property
    def use_of_bound(self) -> PerHead | None:
        """The largest logit of each head beside its bound: at 1 it cannot be sharper, whatever it would like."""
        if self.bound is None:
            return None
        pairs = zip(self.largest_logit, self.bound, strict=False)
        return [logit / bound if bound else 0.0 for logit, bound in pairs]


class Details(Stored):
    """What a validation may tell beside its measures."""

    entropy: dict[str, PerHead] = Field({})
    """Of each attention layer of a translator by its name, and each head: 0 looks at one word, 1 at all alike."""
    attention: list[LayerAttention] = Field([])
    """Of each layer of a language model."""
    validation_seconds: float | None = None


class _Measures(WithMeasures):
    step: int
    seconds: float
    """Since the run began, validations included."""
    tokens_per_second: float
    train_loss: float
    """The mean since the validation before."""
    lr: float
    measures: dict[str, float] = Field({})
    """dev_loss and dev_bleu, or val_loss, or others; `dev_bleu en-gl` of one language pair of several."""
    scales: dict[str, float | PerHead] = Field({})
    """g of each attention layer by its name: a number, or one per head."""

    @property
    def mean_scales(self) -> dict[str, float]:
        """The same, where every head has its own their mean."""
        return {name: fmean(g) if isinstance(g, list) else g for name, g in self.scales.items()}


class ValidationLine(Details, _Measures):
    """A line of metrics.jsonl."""

    @property
    def dev_bleu(self) -> float | None:
        return self.measures.get("dev_bleu")

    @property
    def dev_loss(self) -> float | None:
        return self.measures.get("dev_loss")

    @property
    def val_loss(self) -> float | None:
        return self.measures.get("val_loss")


class Status(Stored):
    """How far a run is that another process has under way: the file status.json."""

    step: int
    most_steps: int
    """The run has ended then at the latest."""
    seconds: float
    tokens_per_second: float
    train_loss: float
    """Since the last validation."""
    lr: float
    seconds_left: float
    """Until `most_steps`, at the speed so far, validations included."""


class Scores(WithMeasures):
    """The file scores.json of a test set."""

    indent: ClassVar[int | None] = 1

    measures: dict[str, float]
    """By the names of the table of metrics."""
    lines: int
    signature: str
    """How `bleu` was computed, in sacrebleu's notation."""

    @property
    def bleu(self) -> float:
        return self.measures["bleu"]

    @property
    def chrf(self) -> float:
        return self.measures["chrf"]

    @property
    def ter(self) -> float:
        return self.measures["ter"]


class Result(WithMeasures):
    """What one run among many came to: the file result.json. Each task has its own."""

    measures: dict[str, float] = Field({})
    seconds: float
    """Of training."""


class TranslationResult(Result):
    """That of a translator; `measures` are its test scores, means over language pairs where there are several."""

    best_dev_bleu: float
    best_dev_score: float | None = None
    """By the metric of the recipe, more being better whichever that is. Earlier versions looked at BLEU alone."""
    updates: int


class LanguageResult(Result):
    """That of a language model."""

    best_val_loss: float
    final_val_loss: float
    best_step: int


class DirectionParts(Stored):
    """One language pair of a model."""

    source: str
    """The code of the language."""
    target: str
    target_pieces: list[int]
    """The numbers of the pieces that the target language uses."""
    is_borrowed: bool = False
    """Whether it was learned beside what the model is for."""


class ModelParts(Stored):
    """What a translator is made of besides its weights: the file pairs.json."""

    scale_init: float | None
    """Where g started."""
    vocabulary: str
    """The digest of tokenizer.json: the weights mean nothing with another one."""
    corpus: str
    """The key of the prepared corpus: a run goes on with the same text."""
    directions: list[DirectionParts] = Field(alias="pairs")


class Calibration(Stored):
    """Which chrF to expect of a translation, from 0 to 1, by the mean probability of its pieces."""

    intercept: float
    slope: float

    def expected(self, probability: float) -> float:
        return min(max(self.intercept + self.slope * probability, 0.0), 1.0)


class Calibrations(Stored):
    """That of each language pair, as its dev set has it: the file confidence.json."""

    indent: ClassVar[int | None] = 1

    by_direction: dict[str, Calibration] = Field({}, alias="pairs")
