from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qknorm.counting.books import Bead, align
from qknorm.data.phrasebook import pairs
from qknorm.errors import InputError
from tests.counting.texts import unseen

Cut = list[tuple[str, set[int]]]
"""Sentences, and the numbers of the pairs that they are made of."""


def cut(lines: list[str], draw: random.Random) -> Cut:
    """One in ten is joined to the line before it, three in a hundred are missing."""
    parts: Cut = []
    for number, line in enumerate(lines):
        if draw.random() < 0.03:
            continue
        if parts and len(parts[-1][1]) == 1 and draw.random() < 0.1:
            parts[-1] = (f"{parts[-1][0].rstrip('.?!')}, {line}", parts[-1][1] | {number})
        else:
            parts.append((line, {number}))
    return parts


def lines_of(side: Cut, rows: Iterable[int]) -> set[int]:
    return set(chain.from_iterable(side[row][1] for row in rows))


def judged(source: Cut, target: Cut, beads: list[Bead]) -> tuple[list[Bead], float]:
    """The beads that are wrong, but for lines that one side lacks; and F1 of the lines that stand together."""
    both = lines_of(source, range(len(source))) & lines_of(target, range(len(target)))
    sides = [(lines_of(source, bead.source) & both, lines_of(target, bead.target) & both) for bead in beads]
    right = sum(len(ours & theirs) for ours, theirs in sides)
    wrong = sum(len(ours ^ theirs) for ours, theirs in sides if ours and theirs)
    return [bead for bead, (ours, theirs) in zip(beads, sides, strict=True) if ours != theirs], (
        2 * right / (right + wrong + len(both))
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_a_text_whose_alignment_is_known_is_aligned(seed: int) -> None:
    draw, phrases = random.Random(seed), pairs(1000)
    source, target = (cut([pair[side] for pair in phrases], draw) for side in (0, 1))
    beads = align([text for text, _ in source], [text for text, _ in target], unseen)
    assert judged(source, target, beads)[1] >= 0.96
    assert {(len(bead.source), len(bead.target)) for bead in beads} >= {(1, 1), (1, 2), (2, 1), (1, 0), (0, 1)}


def test_sentences_side_by_side_stay_so() -> None:
    english, galician = ([pair[side] for pair in pairs(300)] for side in (0, 1))
    beads = align(english, galician, unseen)
    assert sum(bead.source == bead.target for bead in beads) >= 297


def test_what_is_less_sure_is_oftener_wrong() -> None:
    draw, phrases = random.Random(3), pairs(1000)
    source, target = (cut([pair[side] for pair in phrases], draw) for side in (0, 1))
    beads = align([text for text, _ in source], [text for text, _ in target], unseen)
    wrong, unsure = set(judged(source, target, beads)[0]), {bead for bead in beads if bead.confidence < 0.9}
    assert 0 < 10 * len(unsure) < len(beads)
    assert len(wrong & unsure) / len(unsure) > 3 * len(wrong - unsure) / (len(beads) - len(unsure))


def test_a_chapter_that_one_side_lacks_is_left_alone() -> None:
    english, galician = ([pair[side] for pair in pairs(600)] for side in (0, 1))
    beads = align(english, galician[:200] + galician[260:], unseen)
    together = {(bead.source.start, bead.target.start) for bead in beads if bead.source and bead.target}
    expected = {(row, row) for row in range(200)} | {(row, row - 60) for row in range(260, 600)}
    assert len(together & expected) > 0.97 * len(expected)


@settings(max_examples=30)
@given(*[st.lists(st.text("ab1 .", min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=7)] * 2)
def test_every_sentence_is_in_one_bead(source: list[str], target: list[str]) -> None:
    try:
        beads = align(source, target, unseen)
    except InputError:
        return
    assert [row for bead in beads for row in bead.source] == list(range(len(source)))
    assert [row for bead in beads for row in bead.target] == list(range(len(target)))
    assert all(0 <= bead.confidence <= 1 + 1e-6 for bead in beads)


def test_texts_of_very_different_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="the second text is 10 times as long"):
        align(["a b c."], ["a b c."] * 10, unseen)
