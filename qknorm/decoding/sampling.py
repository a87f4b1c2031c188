"""Translations drawn at random. What is drawn for a sentence depends on the seed and its own key, not on its batch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from qknorm.decoding.beam import LEAST, BeamSettings, Hypothesis, Search, searched
from qknorm.decoding.decoder import Decoder
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.ensemble import Stepwise
from qknorm.models.translator import Direction


@dataclass(frozen=True)
class Sampling(Decoder):
    """Draws at random, piece by piece. Scores are the model's own: temperature and top_k do not change them."""

    options: ClassVar[tuple[str, ...]] = ("temperature", "top_k", "seed")
    lengths: BeamSettings
    """Of these, only the limits of lengths count."""
    temperature: float = 1.0
    """Below 1 the likely pieces become likelier, above 1 less so."""
    top_k: int | None = None
    """Only this many of the likeliest pieces are drawn from at each step."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(
                f"temperature must be above 0, not {self.temperature:g}; "
                "a beam search with beam_size 1 takes the likeliest piece"
            )

    @classmethod
    def make(cls, settings: BeamSettings, n_best: int, **options: Any) -> Self:  # noqa: ARG003
        return cls(settings, **options)

    def width(self, sentence: Sentence) -> int:
        return sentence.n

    def decode(self, model: Stepwise, sentences: Sequence[Sentence], direction: Direction) -> list[list[Hypothesis]]:
        each_once = [
            replace(sentence, n=1, key=f"{sentence.key} {number}")
            for sentence in sentences
            for number in range(sentence.n)
        ]
        drawn = searched(lambda chosen: _Drawing(model, chosen, self, direction), each_once, 1)
        hypotheses = iter(hypothesis for (hypothesis,) in drawn)
        return [list(islice(hypotheses, sentence.n)) for sentence in sentences]


class _Drawing(Search):
    """A search with one hypothesis per sentence that draws where beam search takes the best."""

    def __init__(
        self, model: Stepwise, sentences: Sequence[Sentence], sampling: Sampling, direction: Direction
    ) -> None:
        super().__init__(model, sentences, replace(sampling.lengths, beam_size=1), direction)
        self.sampling = sampling
        self.generators = [random.Random(f"{sampling.seed} {sentence.key}") for sentence in sentences]

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One uniform number per sentence, looked up in the sum of probabilities in the order of the vocabulary."""
        log_probabilities = self._allowed_of_all(logits.log_softmax(-1))
        tempered = self._likeliest(log_probabilities.double()) / self.sampling.temperature
        cumulative = tempered.softmax(-1).cumsum(-1)
        numbers = [self.generators[sentence].random() for sentence in self.active.tolist()]
        drawn = torch.tensor(numbers, dtype=torch.double, device=self.device)[:, None] * cumulative[:, -1:]
        # A temperature below 1 magnifies what rounding did to the probabilities.
        self.note_margins((cumulative - drawn).abs() * min(1.0, self.sampling.temperature))
        choices = torch.searchsorted(cumulative, drawn, right=True).squeeze(1)
        rows = torch.arange(len(choices), device=self.device)
        return rows, choices, log_probabilities[rows, choices]

    def _allowed_of_all(self, log_probabilities: Tensor) -> Tensor:
        ending = log_probabilities[:, self.end].clone()
        if self.must_not_end():
            log_probabilities[:, self.end] = -math.inf
        must_end = self.must_end()
        if must_end is not None:
            log_probabilities.masked_fill_(must_end[:, None], -math.inf)
            log_probabilities[:, self.end] = torch.where(
                must_end, ending.clamp_min(LEAST), log_probabilities[:, self.end]
            )
        return log_probabilities

    def _likeliest(self, log_probabilities: Tensor) -> Tensor:
        top_k = self.sampling.top_k
        if top_k is None or top_k >= len(self.vocabulary):
            return log_probabilities
        best = log_probabilities.topk(top_k + 1).values
        self.note_margins(best[:, top_k - 1 : top_k] - best[:, top_k:])
        return log_probabilities.masked_fill(log_probabilities < best[:, top_k - 1 : top_k], -math.inf)
