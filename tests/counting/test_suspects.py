from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from qknorm.counting.evidence import Coverage, sums, without_itself
from qknorm.counting.suspects import counted, suspects, suspicion
from qknorm.data.phrasebook import pairs
from tests.counting.texts import dictionary_text, encoded, unseen


def phrases(count: int) -> tuple[list[str], list[str]]:
    english, galician = zip(*pairs(count), strict=True)
    return list(english), list(galician)


def test_targets_of_other_lines_are_the_most_suspect() -> None:
    english, galician = phrases(1500)
    wrong = sorted(random.Random(1).sample(range(1500), 30))
    for row in wrong:
        galician[row] = pairs(3000)[1500 + row].target
    scores = suspects(english, galician, unseen)
    found = sorted(np.argsort(-scores)[:30].tolist())
    assert len(set(found) & set(wrong)) >= 27
    assert np.median(scores) < 1


def test_half_a_sentence_is_suspect() -> None:
    english, galician = phrases(1500)
    long = [row for row in range(1500) if len(galician[row].split()) > 6][:20]
    for row in long:
        galician[row] = " ".join(galician[row].split()[: len(galician[row].split()) // 2])
    worst = np.argsort(-suspects(english, galician, unseen))[:20]
    assert len(set(worst.tolist()) & set(long)) >= 16


def test_a_blank_side_is_beyond_doubt_and_counts_for_nothing() -> None:
    english, galician = phrases(300)
    scores = suspects(english, galician, unseen)
    with_blanks = suspects(["", *english, "a"], ["o", *galician, " "], unseen)
    assert with_blanks[0] == with_blanks[-1] == np.inf
    np.testing.assert_array_equal(with_blanks[1:-1], scores)
    assert suspects([""], [""], unseen).tolist() == [np.inf]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=9))
def test_every_pair_of_any_text_has_a_score(text: list[tuple[str, str]]) -> None:
    sources, targets = ([pair[side] for pair in text] for side in (0, 1))
    scores = suspects(sources, targets, unseen)
    blank = [not (source.strip() and target.strip()) for source, target in text]
    assert np.isinf(scores).tolist() == blank
    assert not np.isnan(scores).any()


def test_both_directions_find_the_same_suspects() -> None:
    english, galician = phrases(400)
    text, table = counted(english, galician, unseen)
    turned = type(text)(text.target, text.source)
    there, back = suspicion(english, galician, text, table), suspicion(galician, english, turned, table.T.tocsr())
    np.testing.assert_allclose(there, back, atol=1e-4)


def test_what_is_seen_once_is_no_evidence() -> None:
    text = encoded([([1, 2], [5, 6]), ([1, 3], [5, 7])])
    table = counted(["a b", "a c"], ["x y", "x z"], unseen)[1][:8, :8].tolil()
    table[1, 5], table[2, 6] = 0.8, 0.8
    kept = without_itself(table.tocsr(), text)
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
