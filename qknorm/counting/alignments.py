"""Which pieces translate which: word alignments over pieces, learned from the sentence pairs alone.

IBM model 1 (Brown et al. 1993) with the diagonal prior of fast_align (Dyer et al. 2013), in both directions, which
have to agree on each link (Liang, Taskar and Klein 2006). In a round of EM, for place i of n and place j of m:

    P(i ~ j | t_j) = P(t_j | s_i) d(i, j) / (ε + Σ over i' of P(t_j | s_i') d(i', j))      d(i, j) = exp(-4 |i/n - j/m|)
    P(i ~ j | s_i) = P(s_i | t_j) d(i, j) / (ε + Σ over j' of P(s_i | t_j') d(i, j'))
    c(s, t) = Σ over places where s and t stand of P(i ~ j | t_j) P(i ~ j | s_i)
    P(t | s) = c(s, t) / Σ over t' of c(s, t')      P(s | t) = c(s, t) / Σ over s' of c(s', t)

and the result is M[s, t] = √(P(t | s) P(s | t)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from qknorm.data.batches import Encoded, FixedPairs

ROUNDS = 5
DIAGONAL = 4.0  # how strongly places near the diagonal are preferred
_NULL = 0.5  # of the probability of a chance pair: what a piece without a translation goes to
_LONGEST = 200  # pieces of a sentence; what follows is not counted
_LEAST = 0.005  # entries of M below this say nothing
# Above this many cells (places i, j), an evenly spaced part of the sentence pairs stands for all of them.
_MOST_CELLS = 64_000_000
_CELLS_AT_ONCE = 32_000  # what is looked up, weighed and added in one go: it stays in a core's cache
_NOTHING = 1e-9  # where a piece has no links
_THREADS = 2
_TURNS = 20  # in each round, after which progress is told

Rows = NDArray[np.int64]
Progress = Callable[[int, int], None]


def count_translations(directions: Sequence[FixedPairs], pieces: int, progress: Progress) -> sparse.csr_matrix:
    """M, (pieces, pieces) in float32, of one or several language pairs that share a vocabulary.

    `progress` is told how much of how much is done. The result depends on the text alone, not on threads.
    """
    different = distinct(directions)
    samples = [_sample(direction, _MOST_CELLS // len(different)) for direction in different]
    total = sum((ROUNDS + 1) * sample.cells for sample in samples)
    done = 0

    def advance(cells: int) -> None:
        nonlocal done
        done += cells
        progress(done, total)

    combined = sparse.csr_matrix((pieces, pieces), dtype=np.float32)
    for sample in samples:
        links = _Links(sample, pieces)
        links.learn(sample, advance)
        combined = _joined(combined, links.table())
    return combined


def distinct(directions: Sequence[FixedPairs]) -> list[FixedPairs]:
    """The pairs without those that are another one turned round: both directions of a text are one text."""
    kept: list[FixedPairs] = []
    for direction in directions:
        known = ((other.source, other.target) for other in kept)
        if not any(_same(direction, source, target) or _same(direction, target, source) for source, target in known):
            kept.append(direction)
    return kept


def _same(direction: FixedPairs, source: Encoded, target: Encoded) -> bool:
    sides = ((direction.source, source), (direction.target, target))
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

    direction: FixedPairs
    rows: Rows
    heights: Rows
    """Of all sentence pairs: how many pieces of the source are counted."""
    widths: Rows
    """The same of the target."""

    @property
    def cells(self) -> int:
        return int((self.heights[self.rows] * self.widths[self.rows]).sum())


def _sample(direction: FixedPairs, most: int) -> _Sample:
    heights, widths = (np.minimum(side.lengths, _LONGEST) for side in (direction.source, direction.target))
    rows = np.flatnonzero(heights * widths)
    cells = int((heights * widths).sum())
    if cells > most:
        count = max(len(rows) * most // cells, 1)
        rows = rows[np.arange(count) * len(rows) // count]
    return _Sample(direction, rows, heights, widths)


class _Group(NamedTuple):
    """Sentence pairs of one shape."""

    source: Tensor
    """(sentences, source length): pieces."""
    target: Tensor
    """(sentences, target length): pieces."""
    cells: Tensor
    """(sentences, source length, target length), int32: the number of the pair of pieces in the table."""


class _Links:
    """How often pieces are linked in one language pair. An entry for each two that occur together, learned by EM."""

    def __init__(self, sample: _Sample, pieces: int) -> None:
        self._pieces, self._null = pieces, _NULL / pieces
        together = _occurring_together(sample, pieces)
        self._sources = np.repeat(np.arange(pieces, dtype=np.int32), np.diff(together.indptr))
        self._targets = together.indices
        self._keys = self._key(self._sources, self._targets)
        self._counts = torch.ones(len(self._keys))
        self._per_source = self._per_target = torch.full((pieces,), 1 / pieces)

    def learn(self, sample: _Sample, advance: Callable[[int], None]) -> None:
        """Five rounds. Each thread has its own groups and its own sums, whichever core it gets."""
        with ThreadPoolExecutor(_THREADS) as pool:
            groups = []
            for group in pool.map(partial(self._look_up, sample), _by_shape(sample)):
                groups.append(group)
                advance(group.cells.numel())
            for _ in range(ROUNDS):
                self._maximize(self._expected(groups, pool, advance))

    def table(self) -> sparse.csr_matrix:
        """M, without what says nothing."""
        given_source, given_target = self._per_source[self._sources], self._per_target[self._targets]
        agreed = (self._counts * (given_source * given_target).sqrt_()).numpy()
        kept = agreed >= _LEAST
        coordinates = self._sources[kept], self._targets[kept]
        return sparse.csr_matrix((agreed[kept], coordinates), (self._pieces, self._pieces))

    def _key(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.int64]:
        """One number for each pair of pieces, rising in the order of the entries."""
        return sources * np.int64(self._pieces) + targets

    def _look_up(self, sample: _Sample, rows: Rows) -> _Group:
        source = _block(sample.direction.source, rows, int(sample.heights[rows[0]]))
        target = _block(sample.direction.target, rows, int(sample.widths[rows[0]]))
        keys, inverse = np.unique(self._key(source[:, :, None], target[:, None, :]), return_inverse=True)
        numbers = np.searchsorted(self._keys, keys).astype(np.int32)
        return _Group(*map(torch.from_numpy, (source, target, numbers[inverse])))

    def _expected(self, groups: Sequence[_Group], pool: Executor, advance: Callable[[int], None]) -> Tensor:
        sums = [torch.zeros_like(self._counts) for _ in range(_THREADS)]
        for turn in range(_TURNS):
            shares = [groups[turn * _THREADS + thread :: _TURNS * _THREADS] for thread in range(_THREADS)]
            list(pool.map(self._add, shares, sums))
            advance(sum(group.cells.numel() for share in shares for group in share))
        return sum(sums[1:], sums[0])

    def _add(self, groups: Sequence[_Group], sums: Tensor) -> None:
        """Σ over places of P(link | t) P(link | s), each in terms of the counts that are known so far."""
        for source, target, cells in groups:
            numbers = cells.flatten().long()
            counts = self._counts.index_select(0, numbers).view(cells.shape).mul_(_prior(*cells.shape[1:]))
            given_source, given_target = self._per_source[source], self._per_target[target]
            of_target = given_target / (torch.einsum("bn,bnm->bm", given_source, counts) + self._null)
            of_source = given_source / (torch.einsum("bm,bnm->bn", given_target, counts) + self._null)
            agreed = counts.square_().mul_(of_source[:, :, None]).mul_(of_target[:, None, :])
            sums.scatter_add_(0, numbers, agreed.flatten())

    def _maximize(self, counts: Tensor) -> None:
        self._counts = counts
        self._per_source, self._per_target = (
            torch.from_numpy(1 / (np.bincount(numbers, counts.numpy(), self._pieces) + _NOTHING)).float()
            for numbers in (self._sources, self._targets)
        )


def _occurring_together(sample: _Sample, pieces: int) -> sparse.csr_matrix:
    """The pairs of pieces that stand in the same sentence pair: the only ones that have a probability."""
    source, target = (
        _occurrences(side, sample.rows, lengths, pieces)
        for side, lengths in ((sample.direction.source, sample.heights), (sample.direction.target, sample.widths))
    )
    together = (source.T.tocsr() @ target).tocsr()
    together.sort_indices()
    return together


def _occurrences(side: Encoded, rows: Rows, lengths: Rows, pieces: int) -> sparse.csr_matrix:
    """(sentences, pieces), 1 where a piece occurs."""
    starts = np.concatenate(([0], np.cumsum(lengths[rows])))
    positions = np.arange(starts[-1]) + np.repeat(side.offsets[rows] - starts[:-1], lengths[rows])
    numbers = side.numbers[positions]
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
    return (source[:, None] - target).abs_().mul_(-DIAGONAL).exp_()
