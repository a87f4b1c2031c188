"""How little a pair looks like a translation, beside the other pairs of its text.

Of each side: by how many standard deviations its pieces are covered less than those of a pair are
(`qknorm.counting.evidence`). A pair is suspect by both sides together, or by one side alone if the other is too short
for it: the logarithm of its lengths, less its median, in robust standard deviations of pairs that are about as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qknorm.counting.alignments import Progress, count_translations
from qknorm.counting.evidence import Coverage, Numbers, in_pieces, sums, without_itself
from qknorm.data.batches import Encoded, FixedPairs

_FREE = 0.1  # of the mean, squared: how freely whole sentences are translated, beside their pieces
_STRETCHES = 20  # of pairs that are about as long
_LEAST_SPREAD = 0.03
_BY_LENGTH = 0.5  # of a standard deviation
_DEVIATION = 1.4826  # of a normal distribution, by its median absolute deviation


def suspects(sources: Sequence[str], targets: Sequence[str], progress: Progress = lambda *_: None) -> Numbers:
    """How suspect each pair of a text is, by what is counted in it; infinite where a side is blank."""
    is_whole = np.array([bool(s.strip() and t.strip()) for s, t in zip(sources, targets, strict=True)], dtype=bool)
    sources, targets = (list(compress(lines, is_whole)) for lines in (sources, targets))
    scores = np.full(len(is_whole), np.inf)
    if sources:
        pairs, pieces = in_pieces(sources, targets)
        table = count_translations([pairs], pieces, progress)
        scores[is_whole] = suspicion(sources, targets, pairs, table)
    return scores


def suspicion(sources: Sequence[str], targets: Sequence[str], pairs: FixedPairs, table: sparse.csr_matrix) -> Numbers:
    """The same by a table of translations that was counted before: 0 of a usual pair, 3 and more of a doubtful one."""
    table = without_itself(table, pairs)
    target = _uncovered(pairs.source, pairs.target, table)
    source = _uncovered(pairs.target, pairs.source, table.T.tocsr())
    longer = _longer(*(np.array([len(line) for line in lines]) for lines in (sources, targets)))
    left_over = np.where(longer > 0, target, source) + _BY_LENGTH * abs(longer)
    return np.maximum(source + target, left_over)


def _uncovered(by: Encoded, of: Encoded, table: sparse.csr_matrix) -> Numbers:
    """By how many standard deviations less than usual."""
    coverage, covering = Coverage(by, of, table), np.repeat(by.lengths, of.lengths)
    told = sums(coverage.evidence(of.numbers, coverage.covered, covering), of)
    mean, variance = (sums(values, of) for values in coverage.expected(of.numbers, covering))
    return (mean - told) / np.sqrt(variance + 1 + _FREE * mean**2)


def _longer(source: NDArray[np.int64], target: NDArray[np.int64]) -> Numbers:
    """By how many standard deviations the target is longer than usual; below 0, the source."""
    apart: Numbers = np.log((target + 3) / (source + 3))  # a few characters more or less say little of short lines
    apart -= np.median(apart)
    total = np.log(source + target)
    stretches = np.array_split(np.argsort(total, kind="stable"), min(_STRETCHES, len(total)))
    spreads = [_DEVIATION * np.median(abs(apart[rows])) for rows in stretches]
    spread = np.interp(total, [total[rows].mean() for rows in stretches], spreads)
    apart /= np.maximum(spread, _LEAST_SPREAD)
    return apart
