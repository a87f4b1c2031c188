"""Which pieces translate which: word alignments over pieces, learned from the sentence pairs alone.

IBM model 1 (Brown et al. 1993) with the diagonal prior of fast_align (Dyer et al. 2013), by EM, in both directions:

    P(t | s) ∝ Σ over places (i, j) of s and t of  P(t | s) d(i, j) / (ε + Σ over i' of P(t | s') d(i', j))
    d(i, j) = exp(-4 |i/n - j/m|)

and the result is M[s, t] = √(P(t | s) P(s | t)): high only where both directions agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from qknorm.data.batches import Encoded, FixedPairs

ROUNDS = 5
_DIAGONAL = 4.0  # how strongly places near the diagonal are preferred
_NULL = 0.5  # of the probability of a chance pair: what a piece without a translation goes to
_LONGEST = 200  # pieces of a sentence; what follows is not counted
_LEAST = 0.005  # entries of M below this say nothing
# Above this many cells (places i, j), an evenly spaced part of the sentence pairs stands for all of them.
_MOST_CELLS = 64_000_000
_CELLS_AT_ONCE = 2_000_000  # bounds what is looked up, weighed and added in one go

Rows = NDArray[np.int64]
Progress = Callable[[int, int], None]


def count_translations(pairs: Sequence[FixedPairs], pieces: int, progress: Progress) -> sparse.csr_matrix:
    """M, (pieces, pieces) in float32, of one or several language pairs that share a vocabulary.

    `progress` is told how much of how much is done. The result depends on the text alone, not on threads.
    """
    different = distinct(pairs)
    samples = [_sample(pair, _MOST_CELLS // len(different)) for pair in different]
    total = sum((ROUNDS + 1) * sample.cells for sample in samples)
    done = 0

    def advance(cells: int) -> None:
        nonlocal done
        done += cells
        progress(done, total)

    combined = sparse.csr_matrix((pieces, pieces), dtype=np.float32)
    for sample in samples:
        combined = _joined(combined, _Model(sample, pieces, advance).learned())
    return combined


def distinct(pairs: Sequence[FixedPairs]) -> list[FixedPairs]:
    """The pairs without those that are another one turned round: both directions of a text are one text."""
    kept: list[FixedPairs] = []
    for pair in pairs:
        known = ((other.source, other.target) for other in kept)
        if not any(_same(pair, one, two) or _same(pair, two, one) for one, two in known):
            kept.append(pair)
    return kept


def _same(pair: FixedPairs, source: Encoded, target: Encoded) -> bool:
    sides = ((pair.source, source), (pair.target, target))
    return all(np.array_equal(a.numbers, b.numbers) and np.array_equal(a.offsets, b.offsets) for a, b in sides)


def _joined(table: sparse.csr_matrix, other: sparse.csr_matrix) -> sparse.csr_matrix:
    """So that M + Mᵀ is the larger of both tables' M + Mᵀ: knowing a thing twice is knowing it once."""
    if not table.nnz:
        return other
    news = (other + other.T - table - table.T).tocsr()
    return (table + news.maximum(0) / 2).astype(np.float32).tocsr()


@dataclass(frozen=True)
class _Sample:
    """The sentence pairs that are counted, and how many cells they have."""

    pair: FixedPairs
    rows: Rows
    heights: Rows
    """Of all sentence pairs: how many pieces of the source are counted."""
    widths: Rows
    """The same of the target."""

    @property
    def cells(self) -> int:
        return int((self.heights[self.rows] * self.widths[self.rows]).sum())


def _sample(pair: FixedPairs, most: int) -> _Sample:
    heights, widths = (np.minimum(side.lengths, _LONGEST) for side in (pair.source, pair.target))
    rows = np.flatnonzero(heights * widths)
    cells = int((heights * widths).sum())
    if cells > most:
        count = max(len(rows) * most // cells, 1)
        rows = rows[np.arange(count) * len(rows) // count]
    return _Sample(pair, rows, heights, widths)


@dataclass(frozen=True)
class _Group:
    """Sentence pairs of one shape."""

    cells: Tensor
    """(sentences, source length, target length), int32: the number of the pair of pieces in the table."""
    prior: Tensor
    """(source length, target length)"""


@dataclass
class _Direction:
    """The probabilities of one side given the other, as a table over the pairs of pieces that occur."""

    table: Tensor
    counts: Tensor
    given: NDArray[np.int32]
    """The piece of each pair that the probability is conditioned on."""
    axis: int
    """Of a group's cells: where the places of that piece run."""
    null: float

    def expect(self, group: _Group) -> None:
        """Add how often each pair of pieces is linked in these sentences, as far as the table knows."""
        cells = group.cells.flatten().long()
        weights = self.table.index_select(0, cells).view(group.cells.shape).mul_(group.prior)
        weights /= weights.sum(self.axis, keepdim=True).add_(self.null)
        self.counts.scatter_add_(0, cells, weights.flatten())

    def maximize(self) -> None:
        """The counts become probabilities, and their memory that of the next counts."""
        totals = np.bincount(self.given, self.counts.numpy()) + 1e-9
        self.counts /= torch.from_numpy(totals.astype(np.float32)[self.given])
        self.table, self.counts = self.counts, self.table.zero_()


class _Model:
    """EM over one language pair. Its tables have an entry for each pair of pieces that ever occur together."""

    def __init__(self, sample: _Sample, pieces: int, advance: Callable[[int], None]) -> None:
        self._pieces, self._advance = pieces, advance
        together = _occurring_together(sample, pieces)
        self._sources = np.repeat(np.arange(pieces, dtype=np.int32), np.diff(together.indptr))
        self._targets = together.indices
        self._groups = list(self._looked_up(sample))

    def learned(self) -> sparse.csr_matrix:
        """M after all rounds. Both directions go through the text side by side, a thread for each."""
        directions = self._direction(self._sources, 1), self._direction(self._targets, 2)
        with ThreadPoolExecutor(len(directions)) as pool:
            for _ in range(ROUNDS):
                for group in self._groups:
                    list(pool.map(_Direction.expect, directions, (group, group)))
                    self._advance(group.cells.numel())
                for direction in directions:
                    direction.maximize()
        return self._agreed(*(direction.table for direction in directions))

    def _direction(self, given: NDArray[np.int32], axis: int) -> _Direction:
        start = torch.full((len(given),), 1 / self._pieces)
        return _Direction(start, torch.zeros(len(given)), given, axis, _NULL / self._pieces)

    def _agreed(self, forward: Tensor, backward: Tensor) -> sparse.csr_matrix:
        both = (forward * backward).sqrt_().numpy()
        kept = both >= _LEAST
        places = self._sources[kept], self._targets[kept]
        return sparse.csr_matrix((both[kept], places), (self._pieces, self._pieces))

    def _looked_up(self, sample: _Sample) -> Iterator[_Group]:
        known = self._keys(self._sources, self._targets)
        for rows in _by_shape(sample):
            source = _block(sample.pair.source, rows, int(sample.heights[rows[0]]))
            target = _block(sample.pair.target, rows, int(sample.widths[rows[0]]))
            keys, places = np.unique(self._keys(source[:, :, None], target[:, None, :]), return_inverse=True)
            numbers: NDArray[np.int32] = np.searchsorted(known, keys).astype(np.int32)
            yield _Group(torch.from_numpy(numbers[places]), _prior(source.shape[1], target.shape[1]))
            self._advance(places.size)

    def _keys(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.int64]:
        """One number for each pair of pieces, in the order of the tables."""
        return sources * np.int64(self._pieces) + targets


def _occurring_together(sample: _Sample, pieces: int) -> sparse.csr_matrix:
    """The pairs of pieces that stand in the same sentence pair: the only ones that have a probability."""
    source, target = (
        _occurrences(side, sample.rows, lengths, pieces)
        for side, lengths in ((sample.pair.source, sample.heights), (sample.pair.target, sample.widths))
    )
    together = (source.T.tocsr() @ target).tocsr()
    together.sort_indices()
    return together


def _occurrences(side: Encoded, rows: Rows, lengths: Rows, pieces: int) -> sparse.csr_matrix:
    """(sentences, pieces), 1 where a piece occurs."""
    starts = np.concatenate(([0], np.cumsum(lengths[rows])))
    places = np.arange(starts[-1]) + np.repeat(side.offsets[rows] - starts[:-1], lengths[rows])
    numbers = side.numbers[places]
    return sparse.csr_matrix((np.ones(len(numbers), np.float32), numbers, starts), (len(rows), pieces))


def _by_shape(sample: _Sample) -> Iterator[Rows]:
    """The sentence pairs in groups of one shape, none with too many cells."""
    order = sample.rows[np.lexsort((sample.widths[sample.rows], sample.heights[sample.rows]))]
    shapes = sample.heights[order] * (_LONGEST + 1) + sample.widths[order]
    for rows in np.split(order, np.flatnonzero(np.diff(shapes)) + 1):
        if len(rows):
            most = max(_CELLS_AT_ONCE // int(sample.heights[rows[0]] * sample.widths[rows[0]]), 1)
            yield from (rows[start : start + most] for start in range(0, len(rows), most))


def _block(side: Encoded, rows: Rows, length: int) -> NDArray[np.int32]:
    """(sentences, length): the first pieces of each."""
    pieces: NDArray[np.int32] = side.numbers[side.offsets[rows][:, None] + np.arange(length)]
    return pieces


def _prior(height: int, width: int) -> Tensor:
    source, target = torch.arange(height) / height, torch.arange(width) / width
    return (source[:, None] - target).abs_().mul_(-_DIAGONAL).exp_()
