"""A text cut into folds for cross-validation, and windows of it that never cross an edge."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qknorm.errors import InputError


@dataclass(frozen=True)
class TextBlock:
    """A contiguous part of a text, from `start` up to but not including `end`."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Fold:
    """One way to hold out a block and learn from the rest: up to two blocks, before it and after it."""

    train: tuple[TextBlock, ...]
    held_out: TextBlock


def k_folds(length: int, folds: int) -> list[Fold]:
    """`folds` contiguous blocks of a text, sizes differing by at most one, each held out in turn."""
    if folds < 2:
        raise InputError(f"cross-validation needs at least 2 folds, not {folds}")
    if length < folds:
        raise InputError(f"a text of {length} characters cannot be cut into {folds} folds")
    edges = [length * number // folds for number in range(folds + 1)]
    found = []
    for start, end in itertools.pairwise(edges):
        before_and_after = (TextBlock(0, start), TextBlock(end, length))
        found.append(Fold(tuple(block for block in before_and_after if len(block)), TextBlock(start, end)))
    return found


def window_starts(blocks: Sequence[TextBlock], window: int) -> NDArray[np.int64]:
    """Every place where a window of this size fits into one of the blocks."""
    starts = [np.arange(block.start, block.end - window + 1, dtype=np.int64) for block in blocks]
    positions = np.concatenate(starts) if starts else np.empty(0, np.int64)
    if not len(positions):
        longest = max(map(len, blocks), default=0)
        raise InputError(f"a window of {window} characters does not fit: the longest stretch of text has {longest}")
    return positions


def consecutive_windows(block: TextBlock, window: int) -> NDArray[np.int64]:
    """The starts of windows side by side, for evaluation; what is left over at the end is not used."""
    starts: NDArray[np.int64] = window_starts([block], window)[::window]
    return starts
