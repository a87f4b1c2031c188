from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from scipy import sparse

from qknorm.counting import vectors
from qknorm.counting.alignments import count_translations
from qknorm.counting.vectors import fill_in_parts, starting_vectors
from qknorm.data.batches import FixedPairs
from tests.counting.texts import PIECES, Text, dictionary_text, encoded, texts, unseen

Table = NDArray[np.float64]


def started(*directions: FixedPairs, pieces: int = PIECES, dim: int = 4, seed: int = 0) -> NDArray[np.float32]:
    return starting_vectors(directions, count_translations(directions, pieces, unseen), pieces, dim, seed)


def reference(text: Text, translations: Table) -> Table:
    """The rows that the vectors summarise, as the formulas are written: mixed with their translations' rows."""
    both = translations + translations.T
    shares = both / (1 + both.sum(1, keepdims=True))
    mixed: Table = (shares + np.diag(1 - shares.sum(1))) @ _surprise(_neighbours(text))
    return mixed


def _neighbours(text: Text) -> Table:
    counts = np.zeros((PIECES, PIECES))
    for sentence in (side for pair in text for side in pair):
        for i, piece in enumerate(sentence):
            for j, other in enumerate(sentence):
                if 0 < abs(i - j) <= 4:
                    counts[piece, other] += 1 / abs(i - j)
    return counts


def _surprise(counts: Table) -> Table:
    totals = counts.sum(1)
    chance = totals**0.75 / max((totals**0.75).sum(), 1e-9)
    surprise = np.zeros((PIECES, PIECES))
    for a, b in np.argwhere(counts):
        surprise[a, b] = max(np.log(counts[a, b] / totals[a] / chance[b]), 0)
    rows: Table = surprise / np.maximum(np.linalg.norm(surprise, axis=1, keepdims=True), 1e-6)
    return rows


def inner_products(rows: Table) -> Table:
    """U S Uᵀ of the singular value decomposition: what vectors U √S have as inner products."""
    left, values, _ = np.linalg.svd(rows)
    products: Table = left * values @ left.T
    return products


def cosines(products: Table) -> Table:
    lengths = np.sqrt(np.maximum(np.diag(products), 0))
    result: Table = products / np.maximum(np.outer(lengths, lengths), 1e-9)
    return result


@settings(max_examples=50)
@given(texts)
def test_cosines_are_those_of_the_formulas(text: Text) -> None:
    direction = encoded(text)
    translations = count_translations([direction], PIECES, unseen)
    rows = reference(text, translations.toarray().astype(np.float64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_NOISE", 0)
        made = starting_vectors([direction], translations, PIECES, PIECES, 0)
    known = np.linalg.norm(rows, axis=1) > 1e-3
    expected = cosines(inner_products(rows))
    np.testing.assert_allclose((made @ made.T)[known][:, known], expected[known][:, known], atol=2e-3)


@settings(max_examples=30)
@given(texts)
def test_every_vector_has_length_one_whatever_the_text(text: Text) -> None:
    for dim in (1, 4, 40):
        made = started(encoded(text), dim=dim)
        assert made.shape == (PIECES, dim)
        assert made.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


def test_translations_are_nearest_neighbours() -> None:
    text, dictionary = dictionary_text(300, 3000)
    made = started(text, pieces=600, dim=64)
    nearest = (made @ made.T - 2 * np.eye(600)).argmax(1)
    assert (nearest[:300] == dictionary).mean() >= 0.95
    assert (nearest[dictionary] == np.arange(300)).mean() >= 0.95


def test_without_translations_words_in_the_same_places_are_near() -> None:
    """3 and 4 stand between 1 and 2; 7 and 8 between 5 and 6."""
    text = encoded([([1, word, 2], [5, other, 6]) for word, other in ((3, 7), (4, 8))] * 5)
    made = starting_vectors([text], sparse.csr_matrix((PIECES, PIECES), dtype=np.float32), PIECES, 4, 0)
    assert made[3] @ made[4] > 0.9
    assert made[7] @ made[8] > 0.9
    assert abs(made[3] @ made[7]) < 0.2


def test_pieces_that_do_not_occur_point_anywhere() -> None:
    text, _ = dictionary_text(20, 100)
    made = started(text, pieces=60, dim=32)
    products = made[40:] @ made.T - np.eye(60)[40:]
    assert 0.5 < np.abs(products).mean() * np.sqrt(32) < 1.2  # as of random directions: √(2/π)


def test_a_pair_and_its_reverse_are_one_text() -> None:
    text, _ = dictionary_text(20, 100)
    both, alone, other = (
        started(*directions, pieces=40, seed=seed)
        for directions, seed in (((text, FixedPairs(text.target, text.source)), 1), ((text,), 1), ((text,), 2))
    )
    np.testing.assert_array_equal(both, alone)
    assert not np.allclose(alone, other), "the seed decides"


def test_parts_of_words_start_between_the_words() -> None:
    spellings = ["<s>", "throu", "through</w>", "throughout</w>", "other</w>"]
    made = np.eye(5, dtype=np.float32)
    fill_in_parts(made, spellings, [encoded([([2, 3], [4])])])
    np.testing.assert_allclose(made[1], np.array([0, 0, 1, 1, 0]) / np.sqrt(2), atol=1e-6)
    np.testing.assert_array_equal(made[[0, 2, 3, 4]], np.eye(5)[[0, 2, 3, 4]])
