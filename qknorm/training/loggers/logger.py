"""The shape of a logger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Logger(Protocol):
    """Gets the numbers of every validation. Made of the run and the update after which what it has is forgotten."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """By the names that they have in metrics.jsonl, and g/LAYER."""
        ...

    def close(self) -> None:
        """All of it is written."""
        ...
