"""A sentence on its way through a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """What is translated as a unit, and what is asked of it alone, whichever others are translated with it."""

    pieces: Sequence[int]
    """Without EOS."""
    n: int = 1
    """How many hypotheses are wanted."""
    key: str = ""
    """What is drawn at random for it depends on this, beside the seed."""
