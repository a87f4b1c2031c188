"""The shape of a metric, and that of those which sacrebleu computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacrebleuMetric


@dataclass(frozen=True)
class Metric(ABC):
    """Scores all lines of a test set together."""

    label: str
    """What people call it."""
    more_is_better: bool = True
    of_tokens: bool = False
    """Whether it is always computed on tokens, whichever text there is: they are made from it. Not for dev sets."""

    @abstractmethod
    def score(self, hypotheses: Sequence[str], references: Sequence[str], tokenized: bool = False) -> float:
        """The score of lines as people write them, or of tokens as they stand."""


@dataclass(frozen=True, kw_only=True)
class Sacrebleu(Metric):
    """A metric of sacrebleu."""

    make: Callable[[Sequence[str], bool], SacrebleuMetric]
    """Its arguments: the references, and whether the lines are tokens."""

    def score(self, hypotheses: Sequence[str], references: Sequence[str], tokenized: bool = False) -> float:
        return float(self.make(references, tokenized).corpus_score(list(hypotheses), [list(references)]).score)
