"""Which sentences of a text and of its translation belong together, where nobody has put them side by side.

A bead is some sentences of each side that translate each other, or a sentence that the other side lacks. The likeliest
beads from the beginning of both texts to their ends are found by dynamic programming in a band: first by the lengths
of sentences (Gale and Church 1993) and the numbers in them, then also by the translations of words, counted from the
beads that were found (Moore 2002). Of two texts of n and m sentences,

    A(i, j) = Σ over kinds (h, w) of A(i - h, j - w) P(h, w) L(i, j, h, w)

with L how much likelier the h sentences before i and the w before j are a pair than met by chance. The way back takes
the largest part of each sum; its share of the sum is how sure the bead is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qknorm.counting.alignments import Progress, count_translations
from qknorm.counting.evidence import Coverage, Numbers, covers, in_pieces, without_itself
from qknorm.data.batches import Encoded, FixedPairs
from qknorm.errors import InputError

_SURE = 0.7
_PRIORS = {(0, 1): 0.05, (1, 0): 0.05, (1, 1): 0.84, (1, 2): 0.03, (2, 1): 0.03, (2, 2): 0.0005}
_KINDS = list(_PRIORS)
_CELLS = 10_000_000  # of the first band
_NARROW = (50, 25)  # sentences that the later bands go beside the beads that were found before
_SPREAD, _FEW = 0.2, 3.0  # of the logarithm of a pair's lengths: of long ones, and what characters of short ones add
_LEAST_CHANCE = 0.3  # the same of sentences that are no pair
_CAP = 4.0  # nats that lengths may say
_SAME_NUMBERS, _OTHER_NUMBERS = 3.0, -1.5  # nats
_MOST_TIMES = 5  # in bytes, of which scripts with fewer characters have more for each
_TRUST = 0.8  # in words: they do not come one by one
_NUMBERS = re.compile(r"\d{1,100}")

Kind = tuple[int, int]
Rows = NDArray[np.int64]
Band = Sequence[tuple[int, int]]
"""After so many sentences of the source: the fewest and the most of the target."""
Score = Callable[[int, Rows], dict[Kind, Numbers]]
"""log L of beads that end after so many sentences of the source and, one by one, of the target."""


class Bead(NamedTuple):
    """Neighbouring sentences of the source, and those of the target that translate them; one side may have none."""

    source: range
    target: range
    confidence: float
    """From 0 to 1."""

    @property
    def is_pair(self) -> bool:
        return bool(self.source and self.target)

    @property
    def is_sure(self) -> bool:
        return self.is_pair and self.confidence >= _SURE


def align(source: Sequence[str], target: Sequence[str], progress: Progress) -> list[Bead]:
    """The beads of two texts, given as their sentences, none of which is blank; an InputError if they are no pair."""
    _refuse_to_align(source, target)
    lengths = _Lengths(source, target)
    beads = _likeliest(lengths, _first_band(lengths))
    pieces, count = in_pieces(source, target)
    for narrow in _NARROW:
        found = [bead for bead in beads if bead.is_pair]
        pairs = FixedPairs(
            _joined(pieces.source, [bead.source for bead in found]),
            _joined(pieces.target, [bead.target for bead in found]),
        )
        table = without_itself(count_translations([pairs], count, progress), pairs)
        words = _Words(pieces, pairs, table)
        beads = _likeliest(_both(lengths, words), _band_around(beads, len(target), narrow))
    return beads


def _refuse_to_align(source: Sequence[str], target: Sequence[str]) -> None:
    sizes = [sum(len(sentence.encode()) for sentence in side) for side in (source, target)]
    if max(sizes) > _MOST_TIMES * min(sizes):
        which = "first" if sizes[0] > sizes[1] else "second"
        raise InputError(
            f"the {which} text is {max(sizes) / max(min(sizes), 1):.0f} times as long as the other; a text and its "
            "translation are needed"
        )


def _joined(side: Encoded, stretches: Sequence[range]) -> Encoded:
    """The pieces of some sentences together, for each stretch of them."""
    return Encoded.from_lists(
        [side.numbers[side.offsets[rows.start] : side.offsets[rows.stop]].tolist() for rows in stretches]
    )


class _Lengths:
    """Scores by the numbers of characters, and by the numbers that are written in sentences."""

    def __init__(self, source: Sequence[str], target: Sequence[str]) -> None:
        self.source, self.target = (_Marks(side) for side in (source, target))
        self._usual = np.log(self.target.lengths[-1] / self.source.lengths[-1])
        self._chance = {width: self.target.by_chance(width) for _, width in _KINDS if width}

    def __call__(self, stop: int, columns: Rows) -> dict[Kind, Numbers]:
        return {kind: self._of(stop, columns, *kind) for kind in _KINDS if all(kind)}

    def _of(self, stop: int, columns: Rows, height: int, width: int) -> Numbers:
        source, numbers = self.source.before(np.array(stop), height)
        target, others = self.target.before(columns, width)
        (mean, chance), spread, target = self._chance[width], np.sqrt(_SPREAD**2 + _FEW / source), np.log(target)
        apart = target - np.log(source) - self._usual
        told = 0.5 * (((target - mean) / chance) ** 2 - (apart / spread) ** 2) + np.log(chance / spread)
        same = np.where(numbers == others, _SAME_NUMBERS, _OTHER_NUMBERS) * ((numbers != 0) | (others != 0))
        scores: Numbers = np.clip(told, -_CAP, _CAP) + same
        return scores


class _Marks:
    """Sums over the sentences of a side from its beginning on, so that any stretch is a difference."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.lengths = np.cumsum([0, *map(len, sentences)])
        self._numbers = np.cumsum([0, *map(_written_numbers, sentences)])

    def before(self, stops: Rows, count: int) -> tuple[Rows, Rows]:
        """Length and numbers of so many sentences before each of the stops."""
        starts = np.maximum(stops - count, 0)
        return np.maximum(self.lengths[stops] - self.lengths[starts], 1), self._numbers[stops] - self._numbers[starts]

    def by_chance(self, count: int) -> tuple[float, float]:
        """Mean and spread of the logarithm of the length of so many sentences."""
        logs = np.log(self.before(np.arange(min(count, len(self.lengths) - 1), len(self.lengths)), count)[0])
        return float(logs.mean()), max(float(logs.std()), _LEAST_CHANCE)


def _written_numbers(sentence: str) -> int:
    """A number for those in a sentence, in any script; several sentences have the sum."""
    return sum(1 + zlib.crc32(str(int(number)).encode()) for number in _NUMBERS.findall(sentence))


class _Words:
    """Scores by translations, asked for row by row: beads of two source sentences need what was found of the first."""

    def __init__(self, text: FixedPairs, pairs: FixedPairs, table: sparse.csr_matrix) -> None:
        self._source, self._target, self._table = text.source, text.target, table
        self._of_target = Coverage(pairs.source, pairs.target, table)
        self._of_source = Coverage(pairs.target, pairs.source, table.T.tocsr())
        self._links = np.zeros(table.shape[1])  # of the sentence before, as all that follow
        self._length = 0
        self._one = self._two = np.zeros(len(text.target) + 1)

    def __call__(self, stop: int, columns: Rows) -> dict[Kind, Numbers]:
        """Each side's evidence is a sum over its sentences, by one or by two of the other side."""
        rows = slice(max(int(columns[0]) - 2, 0), int(columns[-1]))
        own = self._source[stop - 1]
        table = self._table[own].toarray().astype(np.float64)
        links, length = table.sum(0), len(own)
        by_one = self._target_by(rows, links, length)
        by_two = self._target_by(rows, links + self._links, length + self._length)
        one, two = self._source_by(rows, own, table)
        scores = {
            (1, 1): by_one + one,
            (1, 2): by_one + _shifted(by_one) + two,
            (2, 1): by_two + one + self._one,
            (2, 2): by_two + _shifted(by_two) + two + self._two,
        }
        self._links, self._length, self._one, self._two = links, length, one, two
        return {kind: values[columns] for kind, values in scores.items()}

    def _target_by(self, rows: slice, links: Numbers, length: int) -> Numbers:
        """Evidence of each target sentence, at the number of sentences after it."""
        offsets = self._target.offsets[rows.start : rows.stop + 1]
        pieces = self._target.numbers[offsets[0] : offsets[-1]]
        told = self._of_target.evidence(pieces, covers(links[pieces]), length)
        return self._placed(rows, np.add.reduceat(told, offsets[:-1] - offsets[0]))

    def _source_by(self, rows: slice, own: NDArray[np.int32], table: Numbers) -> tuple[Numbers, Numbers]:
        """Evidence of a source sentence, by each target sentence and by each two."""
        offsets = self._target.offsets[rows.start : rows.stop + 1]
        pieces = self._target.numbers[offsets[0] : offsets[-1]]
        links, lengths = np.add.reduceat(table[:, pieces], offsets[:-1] - offsets[0], axis=1), np.diff(offsets)
        one, two = (
            self._of_source.evidence(own[:, None], covers(linked), by).sum(0)
            for linked, by in ((links, lengths), (links + _shifted(links), lengths + _shifted(lengths)))
        )
        return self._placed(rows, one), self._placed(rows, two)

    def _placed(self, rows: slice, values: Numbers) -> Numbers:
        whole = np.zeros(len(self._target) + 1)
        whole[rows.start + 1 : rows.stop + 1] = values
        return whole


def _shifted(values: NDArray[Any]) -> NDArray[Any]:
    """What stands one place before, along the last axis."""
    shifted = np.zeros_like(values)
    shifted[..., 1:] = values[..., :-1]
    return shifted


def _both(lengths: Score, words: Score) -> Score:
    def score(stop: int, columns: Rows) -> dict[Kind, Numbers]:
        of_words = words(stop, columns)
        return {kind: told + _TRUST * of_words[kind] for kind, told in lengths(stop, columns).items()}

    return score


def _first_band(lengths: _Lengths) -> Band:
    """Around where as much of the target lies behind as of the source, in characters."""
    source, target = (side.lengths / side.lengths[-1] for side in (lengths.source, lengths.target))
    around, most = max(_CELLS // (2 * len(source)), max(_NARROW)), len(target) - 1
    middles = np.searchsorted(target, source).tolist()
    return [(max(middle - around, 0), min(middle + around, most)) for middle in middles]


def _band_around(beads: Sequence[Bead], most: int, narrow: int) -> Band:
    """Around the beads that were found."""
    band = [(0, 0)]
    for bead in beads:
        band[-1] = (band[-1][0], bead.target.stop if not bead.source else band[-1][1])
        band += [(bead.target.start, bead.target.stop)] * len(bead.source)
    return [(max(low - narrow, 0), min(high + narrow, most)) for low, high in band]


def _likeliest(score: Score, band: Band) -> list[Bead]:
    """The beads along the way back, in the order of the text."""
    rows = _Rows()
    for stop, (low, high) in enumerate(band):
        columns = np.arange(low, high + 1)
        rows.add(columns, score(stop, columns) if stop else {})
    beads: list[Bead] = []
    stop, column = len(band) - 1, band[-1][1]
    while stop or column:
        place = column - band[stop][0]
        height, width = _KINDS[rows.kinds[stop][place]]
        confidence = float(rows.shares[stop][place])
        beads.append(Bead(range(stop - height, stop), range(column - width, column), confidence))
        stop, column = stop - height, column - width
    return beads[::-1]


class _Rows:
    """log A, row by row, and of each cell the kind of bead that is the largest part of it, with its share."""

    def __init__(self) -> None:
        self.kinds: list[NDArray[np.uint8]] = []
        self.shares: list[NDArray[np.float32]] = []
        self._last: list[tuple[Rows, Numbers]] = []  # the two rows before, with their columns

    def add(self, columns: Rows, scores: dict[Kind, Numbers]) -> None:
        parts = np.full((len(_KINDS), len(columns)), -np.inf)
        for part, (height, width) in zip(parts, _KINDS, strict=True):
            if 0 < height <= len(self._last):
                part[:] = self._at(height, columns - width) + np.log(_PRIORS[height, width])
                part += scores.get((height, width), 0.0)
        total = np.logaddexp.reduce(parts)
        if not self._last:
            total[columns == 0] = 0.0
        gaps = columns * np.log(_PRIORS[0, 1])
        total = np.logaddexp.accumulate(total - gaps) + gaps
        parts[_KINDS.index((0, 1)), 1:] = total[:-1] + np.log(_PRIORS[0, 1])
        largest = parts.argmax(0)
        self.kinds.append(largest.astype(np.uint8))
        self.shares.append(np.exp(parts.max(0) - np.where(np.isfinite(total), total, np.inf)).astype(np.float32))
        self._last = [*self._last[-1:], (columns, total)]

    def _at(self, height: int, columns: Rows) -> Numbers:
        """log A so many rows before; of a cell outside of the band, of nothing."""
        there, values = self._last[-height]
        inside = (columns >= there[0]) & (columns <= there[-1])
        return np.where(inside, values[np.clip(columns - there[0], 0, len(values) - 1)], -np.inf)
