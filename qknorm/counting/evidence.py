"""How much the pieces of two texts say that one translates the other, by counted translations.

A piece t is covered by a text as far as the text's pieces are translated by it: c = min(1, 2 Σ over s of M[s, t]), for
few links come near to 1. In a pair it usually is, elsewhere by chance. c says how much likelier a pair makes it:

    e(t) = c log(p / q) + (1 - c) log((1 - p) / (1 - q))      1 - p = (1 - q) (1 - r)

with q the chance, which rises with the number of pieces that may cover t, and r how often pairs cover it beyond chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qknorm.data.batches import Encoded, FixedPairs
from qknorm.data.subwords import Scheme, Subwords, looks_tokenized

_MERGES = 8000  # whole words, mostly
_SURE = 0.5  # entry of M of a word that is always translated alike, about
_LEAST_CHANCE, _MOST_CHANCE = 0.001, 0.9
_LEAST_RATE, _MOST_RATE = 0.02, 0.9  # no piece proves anything
_PRIOR = 4.0  # times that a piece is thought to have been seen as an average one
_ROWS = 500  # of dense coverage at a time

Numbers = NDArray[np.float64]


def in_pieces(source: Sequence[str], target: Sequence[str]) -> tuple[FixedPairs, int]:
    """Two texts in pieces that are learned from them, and how many pieces there are."""
    scheme: Scheme = "words" if looks_tokenized(source) and looks_tokenized(target) else "raw"
    subwords = Subwords.learn([*source, *target], _MERGES, scheme)
    sides = (Encoded.from_lists(subwords.encode(lines)) for lines in (source, target))
    return FixedPairs(*sides), len(subwords)


class Coverage:
    """What it says of the pieces of one side that the other side covers them, learned from pairs."""

    def __init__(self, by: Encoded, of: Encoded, table: sparse.csr_matrix) -> None:
        """`table` has the pieces of `by` in its rows and those of `of` in its columns."""
        pieces = table.shape[1]
        self._per_piece = np.asarray(_present(by, pieces).sum(0) @ table).ravel() / _SURE / max(len(by.numbers), 1)
        self.covered = _covered(by, of, table)
        """Of each piece of `of`, c."""
        chance = self._chance(of.numbers, np.repeat(by.lengths, of.lengths))
        beyond = np.bincount(of.numbers, self.covered - chance, pieces)
        room = np.bincount(of.numbers, 1 - chance, pieces)
        usual = max(float(beyond.sum()), 0.0) / max(float(room.sum()), 1.0)
        self._rate = np.clip((beyond + _PRIOR * usual) / (room + _PRIOR), _LEAST_RATE, _MOST_RATE)

    def evidence(self, pieces: NDArray[np.int32], covered: Numbers, by: NDArray[np.int64] | int) -> Numbers:
        """e of pieces that are covered so by that many."""
        _, if_covered, if_not = self._told(pieces, by)
        told: Numbers = if_not + covered * (if_covered - if_not)
        return told

    def expected(self, pieces: NDArray[np.int32], by: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Mean and variance of e in a pair."""
        likely, if_covered, if_not = self._told(pieces, by)
        apart = if_covered - if_not
        return if_not + likely * apart, likely * (1 - likely) * apart**2

    def _told(self, pieces: NDArray[np.int32], by: NDArray[np.int64] | int) -> tuple[Numbers, Numbers, Numbers]:
        """p, and e of a piece that is covered and of one that is not."""
        chance, rest = self._chance(pieces, by), 1 - self._rate[pieces]
        likely = 1 - (1 - chance) * rest
        return likely, np.log(likely / chance), np.log(rest)

    def _chance(self, pieces: NDArray[np.int32], by: NDArray[np.int64] | int) -> Numbers:
        chance: Numbers = np.clip(self._per_piece[pieces] * by, _LEAST_CHANCE, _MOST_CHANCE)
        return chance


def without_itself(table: sparse.csr_matrix, pairs: FixedPairs) -> sparse.csr_matrix:
    """M, where a link counts by the pairs that have it but one: what is seen once would judge itself."""
    source, target = (_present(side, table.shape[0]) for side in (pairs.source, pairs.target))
    links = table.tocoo()
    together = (source.T.tocsr() @ target).tocsr()
    times = np.asarray(together[links.row, links.col], dtype=np.float64).ravel()
    values = (links.data * np.maximum(times - 1, 0) / np.maximum(times, 1)).astype(np.float32)
    return sparse.csr_matrix((values, (links.row, links.col)), table.shape)


def covers(links: Numbers) -> Numbers:
    """c of pieces by the sums of their links."""
    covered: Numbers = np.minimum(links / _SURE, 1)
    return covered


def sums(values: Numbers, side: Encoded) -> Numbers:
    """Of each sequence, the sum over its pieces."""
    return np.bincount(np.repeat(np.arange(len(side)), side.lengths), values, len(side)).astype(np.float64)


def _present(side: Encoded, pieces: int) -> sparse.csr_matrix:
    """(sequences, pieces), 1 where a piece occurs."""
    rows = np.repeat(np.arange(len(side)), side.lengths)
    present = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, side.numbers)), (len(side), pieces))
    present.data[:] = 1
    return present


def _covered(by: Encoded, of: Encoded, table: sparse.csr_matrix) -> Numbers:
    """c of each piece of `of` in its own pair."""
    present, links = _present(by, table.shape[0]), np.zeros(len(of.numbers))
    for start in range(0, len(by), _ROWS):
        rows = slice(start, min(start + _ROWS, len(by)))
        dense = (present[rows] @ table).toarray()
        pieces = slice(of.offsets[rows.start], of.offsets[rows.stop])
        links[pieces] = dense[np.repeat(np.arange(len(dense)), of.lengths[rows]), of.numbers[pieces]]
    return covers(links)
