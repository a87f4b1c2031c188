from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qknorm.counting.alignments import count_translations
from qknorm.counting.evidence import in_pieces
from qknorm.counting.suspects import suspects, suspicion
from qknorm.data.phrasebook import pairs
from tests.counting.texts import unseen


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
    assert len(set(worst.tolist()) & set(long)) >= 12


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
    text, pieces = in_pieces(english, galician)
    table = count_translations([text], pieces, unseen)
    turned = type(text)(text.target, text.source)
    there, back = suspicion(english, galician, text, table), suspicion(galician, english, turned, table.T.tocsr())
    np.testing.assert_allclose(there, back, atol=1e-4)
