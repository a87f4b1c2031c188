from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from qknorm.counting.evidence import Coverage, sums, without_itself
from tests.counting.texts import dictionary_text, encoded


def test_what_is_seen_once_is_no_evidence() -> None:
    text = encoded([([1, 2], [5, 6]), ([1, 3], [5, 7])])
    table = sparse.csr_matrix(([0.8, 0.8], ([1, 2], [5, 6])), (8, 8))
    kept = without_itself(table, text)
    assert (kept[1, 5], kept[2, 6]) == (pytest.approx(0.4), 0)


def test_evidence_is_for_real_pairs_and_against_others() -> None:
    """By the dictionary itself, as a table."""
    text, dictionary = dictionary_text(50, 400)
    table = np.zeros((100, 100), np.float32)
    table[np.arange(50), dictionary] = 1
    coverage = Coverage(text.source, text.target, sparse.csr_matrix(table))
    assert coverage.covered.min() == 1
    by = np.repeat(text.source.lengths, text.target.lengths)
    for_pairs = sums(coverage.evidence(text.target.numbers, coverage.covered, by), text.target)
    against = sums(coverage.evidence(text.target.numbers, 0 * coverage.covered, by), text.target)
    assert (for_pairs > 0).all()
    assert (against < 0).all()
