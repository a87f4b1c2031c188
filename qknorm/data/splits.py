"""Dev and test sets chosen from a cleaned text by source sentence, so that none is in two sets.

Of each pair only a fingerprint of its source is remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qknorm.data.pipeline import tidy
from qknorm.errors import InputError

SPLITS = ("train", "dev", "test")
_PAIRS = 500  # for each set, but at most a tenth of what is left after cleaning
_FEWEST_SENTENCES = 30  # to learn and to test


def split(sources: Iterable[str], held_out: int, file: Path) -> NDArray[np.int64]:
    """The set of each pair: 0 to learn from, or one of the sets 1, 2 … that are held out; always the same.

    Sentences are looked at in the order of the text. One goes to the emptiest set as soon as that has less than its
    share of the pairs so far; so every n-th goes to each set if no two pairs have the same source. A sentence with so
    many translations that they would fill a set is learned from. The file is where they come from.
    """
    prints = np.fromiter(map(_fingerprint, sources), np.uint64)
    _, first, sentence, sizes = np.unique(prints, return_index=True, return_inverse=True, return_counts=True)
    every = max(10, len(prints) // _PAIRS)
    order = [number for number in np.argsort(first).tolist() if sizes[number] * every <= len(prints)]
    if len(order) < _FEWEST_SENTENCES:
        raise InputError(
            f"{file} has {len(order)} different sentences to split dev and test sets off; "
            f"at least {_FEWEST_SENTENCES} are needed to learn and to test"
        )
    split_of, filled, seen = np.zeros(len(sizes), np.int64), [0] * held_out, 0
    for number in order:
        seen += (size := int(sizes[number]))
        emptiest = filled.index(min(filled))
        if filled[emptiest] * every < seen:
            split_of[number] = 1 + emptiest
            filled[emptiest] += size
    return split_of[sentence]


def _fingerprint(source: str) -> int:
    """64 bits of a sentence, the same for other white space and other forms of the same characters."""
    return int.from_bytes(hashlib.blake2b(tidy(source).encode(), digest_size=8).digest(), "little")
