"""Starting vectors of pieces: a piece is known by the pieces around it, and by those around its translations.

Positive pointwise mutual information with neighbours (Levy, Goldberg and Dagan 2015), each language by itself; each
row mixed with those of its translations; the leading singular vectors of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from qknorm.counting.alignments import distinct
from qknorm.data.batches import Encoded, FixedPairs

_WINDOW = 4  # neighbours on each side, each counting 1/distance
_SMOOTHING = 0.75  # power of the neighbours' frequencies: rare ones surprise less
_NOISE = 0.02  # standard deviations: no two vectors start alike
_EXTRA = 20  # dimensions beyond those asked for, which make the leading ones precise
_ITERATIONS = 2  # of the power method: Halko, Martinsson and Tropp 2011, algorithm 4.4


def starting_vectors(
    directions: Sequence[FixedPairs], translations: sparse.csr_matrix, pieces: int, dim: int, seed: int
) -> NDArray[np.float32]:
    """(pieces, dim), each of length 1, near to those of similar pieces and of translations.

    `translations` is what `count_translations` gave. Pieces that do not occur get random directions.
    """
    sides = [side for direction in distinct(directions) for side in (direction.source, direction.target)]
    surprise, mixing = _surprise(_neighbours(sides, pieces)), _mixing(translations)
    generator = torch.Generator().manual_seed(seed)
    vectors = _reduced(mixing, surprise, dim, generator)
    vectors += _NOISE * vectors.std() * torch.randn(vectors.shape, generator=generator)
    unknown = torch.from_numpy(mixing @ surprise.sum(1) == 0).flatten()
    vectors[unknown] = torch.randn(vectors.shape, generator=generator)[unknown]
    return F.normalize(vectors).numpy()


def fill_in_parts(vectors: NDArray[np.float32], spellings: Sequence[str], directions: Sequence[FixedPairs]) -> None:
    """Pieces that only BPE-dropout makes, such as "throu", become the mean of those they are a part of."""
    occurring = np.unique(
        np.concatenate([side.numbers for direction in directions for side in (direction.source, direction.target)])
    )
    for part in np.setdiff1d(np.arange(len(spellings)), occurring):
        wholes = [whole for whole in occurring if spellings[part] in spellings[whole]]
        if wholes:
            mean = vectors[wholes].mean(0)
            vectors[part] = mean / np.linalg.norm(mean)


def _neighbours(sides: Sequence[Encoded], pieces: int) -> sparse.csr_matrix:
    """C[a, b]: how often a and b stand near each other in a sentence, the nearer the more."""
    counts = sparse.csr_matrix((pieces, pieces), dtype=np.float32)
    for side in sides:
        for distance in range(1, _WINDOW + 1):
            counts = counts + _at_distance(side, distance, pieces)
    return (counts + counts.T).tocsr()


def _at_distance(side: Encoded, distance: int, pieces: int) -> sparse.csr_matrix:
    sentence = np.repeat(np.arange(len(side), dtype=np.int32), side.lengths)
    inside = sentence[:-distance] == sentence[distance:]
    before, after = side.numbers[:-distance][inside], side.numbers[distance:][inside]
    weights = np.full(len(before), 1 / distance, np.float32)
    return sparse.csr_matrix((weights, (before, after)), (pieces, pieces))


def _surprise(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """log of (how often b is seen next to a) / (how often it would be by chance), where above 0; rows of length 1."""
    totals = np.asarray(counts.sum(1), dtype=np.float64).ravel()
    chance = totals**_SMOOTHING / max((totals**_SMOOTHING).sum(), 1e-9)
    rows = np.repeat(np.arange(len(totals)), np.diff(counts.indptr))
    ratios = counts.data / (totals[rows] * chance[counts.indices])
    positive = np.maximum(np.log(ratios), 0).astype(np.float32)
    lengths = np.sqrt(np.bincount(rows, positive**2, len(totals)))
    surprise = sparse.csr_matrix(
        (positive / np.maximum(lengths, 1e-6)[rows], counts.indices, counts.indptr), counts.shape
    )
    surprise.eliminate_zeros()
    return surprise.astype(np.float32)


def _mixing(translations: sparse.csr_matrix) -> sparse.csr_matrix:
    """Rows of weights that sum to 1: translations by how sure they are, the rest for the piece itself."""
    both = (translations + translations.T).tocsr()
    shares = sparse.diags(1 / (1 + np.asarray(both.sum(1)).ravel())) @ both
    rest = 1 - np.asarray(shares.sum(1)).ravel()
    return (shares + sparse.diags(rest)).astype(np.float32).tocsr()


def _reduced(mixing: sparse.csr_matrix, surprise: sparse.csr_matrix, dim: int, generator: torch.Generator) -> Tensor:
    """U √S of the leading singular vectors of mixing · surprise, which is never multiplied out; 0 beyond its rank."""
    pieces = surprise.shape[0]
    width = min(dim + _EXTRA, pieces)
    basis = torch.randn(pieces, width, generator=generator).numpy()
    for _ in range(_ITERATIONS):
        basis = _orthogonal(mixing @ (surprise @ basis))
        basis = _orthogonal(surprise.T @ (mixing.T @ basis))
    basis = _orthogonal(mixing @ (surprise @ basis))
    small = torch.from_numpy(surprise.T @ (mixing.T @ basis))
    _, values, turn = torch.linalg.svd(small, full_matrices=False)
    reduced = torch.zeros(pieces, dim)
    reduced[:, :width] = (torch.from_numpy(basis) @ turn.T * values.sqrt())[:, :dim]
    return reduced


def _orthogonal(columns: NDArray[np.float32]) -> NDArray[np.float32]:
    basis: NDArray[np.float32] = torch.linalg.qr(torch.from_numpy(columns))[0].numpy()
    return basis
