"""Dev and test split off a training text: cleaned first, then by source sentence, so that none is in two sets.

The text is read twice; of each pair only a fingerprint of its source is remembered.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qknorm.data.cleaning import Report, Rules, clean, refuse_if_nothing_is_left
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.pipeline import tidy
from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError

_PAIRS = 500  # for each set, but at most a tenth of what is left after cleaning
_FEWEST_SENTENCES = 30  # to learn and to test
_NOWHERE = -1  # in none of the splits

Files = tuple[Path, Path]


@dataclass(frozen=True)
class Origin:
    """The text that others were split off, and what is noted of it beside them."""

    source: Path
    target: Path
    numbers: Path
    """A line for each pair of the training text: its number in the original."""
    dropped: Path
    """What no set has, as `clean` lists it."""

    def read_numbers(self) -> list[int]:
        return [int(line) for line in read_lines(self.numbers)]


def split_off(origin: Origin, splits: Mapping[str, Files], rules: Rules, held_out: Iterable[Pair] = ()) -> None:
    """Clean a text and write the files of its splits: the first is the training text, the others are held out of it.

    It is the same whenever it is done. held_out: pairs that are held out already, and therefore dropped here.
    """
    report, numbers, sources = Report(), array("Q"), array("Q")
    for pair in clean(read_aligned(origin.source, origin.target), rules, origin.dropped, held_out, report):
        numbers.append(report.read)
        sources.append(_fingerprint(pair.source))
    refuse_if_nothing_is_left(report, origin.source, origin.target)
    split_of = np.full(report.read, _NOWHERE, np.int8)
    split_of[np.array(numbers, np.int64) - 1] = _choose(np.array(sources), len(splits) - 1, origin)
    with contextlib.ExitStack() as stack:
        paths = [*(path for two in splits.values() for path in two), origin.numbers]
        *sides, lines = (stack.enter_context(replacing(path)) for path in paths)
        pairs = zip(read_aligned(origin.source, origin.target), split_of.tolist(), strict=True)
        for number, (pair, split) in enumerate(pairs, start=1):
            if split == _NOWHERE:
                continue
            if split == 0:
                lines.write(b"%d\n" % number)
            for side, text in enumerate(pair):
                sides[2 * split + side].write(text.encode() + b"\n")


def _fingerprint(source: str) -> int:
    """64 bits of a sentence, the same for other white space and other forms of the same characters."""
    return int.from_bytes(hashlib.blake2b(tidy(source).encode(), digest_size=8).digest(), "little")


def _choose(sources: NDArray[np.uint64], held_out: int, origin: Origin) -> NDArray[np.int64]:
    """The split of each pair: 0 to learn from, or one of the sets 1, 2 … that are held out.

    Sentences are looked at in the order of the text. One goes to the emptiest set as soon as that has less than its
    share of the pairs so far; so every n-th goes to each set if no two pairs have the same source. A sentence with so
    many translations that they would fill a set is learned from.
    """
    _, first, sentence, sizes = np.unique(sources, return_index=True, return_inverse=True, return_counts=True)
    every = max(10, len(sources) // _PAIRS)
    order = [number for number in np.argsort(first).tolist() if sizes[number] * every <= len(sources)]
    if len(order) < _FEWEST_SENTENCES:
        raise InputError(
            f"{origin.source} has {len(order)} different sentences to split dev and test sets off; "
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
