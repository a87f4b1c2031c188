from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from numpy.typing import NDArray

from qknorm.counting import alignments
from qknorm.counting.alignments import count_translations, distinct
from qknorm.data.batches import FixedPairs
from tests.counting.texts import PIECES, Sentence, Text, dictionary_text, encoded, texts, turned, unseen

LEAST = 0.005  # smaller entries are dropped
Table = NDArray[np.float64]


def counted(*directions: FixedPairs, pieces: int = PIECES) -> Table:
    return np.asarray(count_translations(directions, pieces, unseen).toarray(), dtype=np.float64)


def reference(text: Text) -> Table:
    """The formulas as they are written, cell by cell."""
    to_target = to_source = np.full((PIECES, PIECES), 1 / PIECES)
    for _ in range(5):
        counts = np.zeros((PIECES, PIECES))
        for source, target in text:
            agreed = _links(source, target, to_target) * _links(target, source, to_source.T).T
            np.add.at(counts, np.ix_(source, target), agreed)
        to_target = counts / (counts.sum(1, keepdims=True) + 1e-9)
        to_source = counts / (counts.sum(0) + 1e-9)
    table: Table = np.sqrt(to_target * to_source)
    return table


def _links(source: Sentence, target: Sentence, table: Table) -> Table:
    """P(i ~ j | t_j)"""
    links = np.zeros((len(source), len(target)))
    for i, s in enumerate(source):
        for j, t in enumerate(target):
            links[i, j] = table[s, t] * math.exp(-4 * abs(i / len(source) - j / len(target)))
    chances: Table = links / (links.sum(0) + 0.5 / PIECES)
    return chances


@given(texts)
@example([([], [])])
@example([([], [1, 2]), ([3], [])])
def test_it_is_what_the_formulas_say(text: Text) -> None:
    expected = reference(text)
    sure = abs(expected - LEAST) > 1e-5  # what is 0.005 but for rounding may be there or not
    np.testing.assert_allclose(counted(encoded(text))[sure], np.where(expected < LEAST, 0, expected)[sure], atol=1e-5)


@pytest.mark.parametrize("cells", [1, 7, 50])
def test_how_many_cells_are_weighed_at_once_does_not_matter(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = dictionary_text(10, 60)
    expected = counted(text, pieces=20)
    monkeypatch.setattr(alignments, "_CELLS_AT_ONCE", cells)
    np.testing.assert_allclose(counted(text, pieces=20), expected, atol=1e-6)


def test_threads_do_not_change_a_bit() -> None:
    text, _ = dictionary_text(50, 2000)
    threads = torch.get_num_threads()
    tables = []
    for number in (1, 2):
        torch.set_num_threads(number)
        tables.append(counted(text, pieces=100))
    torch.set_num_threads(threads)
    np.testing.assert_array_equal(tables[0], tables[1])


def test_a_dictionary_is_found() -> None:
    text, dictionary = dictionary_text(300, 3000)
    table = counted(text, pieces=600)
    assert (table[:300].argmax(1) == dictionary).mean() >= 0.95
    assert (table[:, dictionary].argmax(0) == np.arange(300)).mean() >= 0.95


def test_part_of_a_text_that_is_too_long_stands_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text, dictionary = dictionary_text(50, 3000)
    cells = int((text.source.lengths * text.target.lengths).sum())
    monkeypatch.setattr(alignments, "_MOST_CELLS", cells // 3)
    steps: list[tuple[int, int]] = []
    table = count_translations([text], 100, lambda done, total: steps.append((done, total))).toarray()
    assert (table[:50].argmax(1) == dictionary).mean() >= 0.95
    assert steps[-1][1] == pytest.approx(cells / 3 * 6, rel=0.05)
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {steps[-1][0]}  # it ends where it said it would


def test_of_a_very_long_sentence_the_beginning_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignments, "_LONGEST", 3)
    np.testing.assert_array_equal(
        counted(encoded([([1, 2, 3, 4, 5], [6, 7])])), counted(encoded([([1, 2, 3], [6, 7])]))
    )


def both_ways(table: Table) -> Table:
    return table + table.T


@settings(max_examples=30)
@given(texts)
def test_a_pair_and_its_reverse_are_known_once(text: Text) -> None:
    once, twice = counted(encoded(text)), counted(encoded(text), encoded(turned(text)))
    np.testing.assert_array_equal(twice, once)


@settings(max_examples=30)
@given(texts, texts)
def test_of_several_pairs_the_surer_one_is_believed(text: Text, other: Text) -> None:
    expected = np.maximum(both_ways(counted(encoded(text))), both_ways(counted(encoded(other))))
    np.testing.assert_allclose(both_ways(counted(encoded(text), encoded(other))), expected, atol=1e-5)


def test_almost_a_reverse_adds_almost_nothing() -> None:
    """Such as one whose cleaning dropped another line."""
    text = [([1, 2], [5, 6]), ([2, 3], [6, 7]), ([1, 3], [5, 7])] * 20
    once, twice = counted(encoded(text)), counted(encoded(text), encoded(turned(text[:-1])))
    np.testing.assert_allclose(both_ways(twice), both_ways(once), atol=0.02)


def test_distinct_keeps_the_first_of_each() -> None:
    first, second = [([1], [2, 3])], [([1, 2], [3])]
    directions = [encoded(first), encoded(second), encoded(turned(first)), encoded(second)]
    assert distinct(directions) == directions[:2]
    assert count_translations([], PIECES, unseen).shape == (PIECES, PIECES)
