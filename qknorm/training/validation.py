"""What a validation found: the score by which checkpoints are chosen, and everything else that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qknorm.runs.contents import Details


@dataclass(frozen=True)
class Validation:
    """Measures on held-out data, by the names that they have in metrics.jsonl."""

    measures: Mapping[str, float]
    chosen: str
    """The measure by which the best checkpoint is chosen, the learning rate decayed and training ended."""
    more_is_better: bool
    """Whether that is so of the chosen measure."""
    by_direction: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The measures of each language pair, where there are several."""
    details: Details = field(default_factory=Details)
    """What else goes to metrics.jsonl."""

    @property
    def score(self) -> float:
        """The chosen measure, turned round if less of it is better: so that more always is."""
        value = self.measures[self.chosen]
        return value if self.more_is_better else -value

    def by_name(self) -> dict[str, float]:
        """All measures for metrics.jsonl, the chosen one first."""
        of_directions = {
            f"{name} {direction}": value
            for direction, measures in self.by_direction.items()
            for name, value in measures.items()
        }
        return {self.chosen: self.measures[self.chosen], **self.measures, **of_directions}
