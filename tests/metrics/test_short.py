from __future__ import annotations

import pytest

from qknorm.metrics.short import is_too_short_for_bleu
from qknorm.metrics.table import METRICS
from tests.metrics.test_script import CHINESE, KOREAN, THAI

GLOSSARY = ["house", "bread", "to read", "the sea", "shop"]


def test_bleu_prefers_a_glossary_that_babbles_to_a_perfect_one() -> None:
    """Why such lines must be told apart: only who says four words has sequences of four, and these are smoothed."""
    babble = [f"{GLOSSARY[0]} {line} {line} {line} {line}" for line in GLOSSARY]
    perfect, babbled = (
        [METRICS[name].score(lines, GLOSSARY) for name in ("bleu", "chrf")] for lines in (GLOSSARY, babble)
    )
    assert perfect == pytest.approx([0, 100])
    assert babbled[0] > perfect[0]
    assert babbled[1] < perfect[1]
    assert is_too_short_for_bleu(GLOSSARY)


SENTENCE = "It is late , and the shop is closed . " * 5


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        *((references, False) for references in (CHINESE, THAI, KOREAN, ["The shop is closed."], [])),
        (["房子", "面包", "读书"], True),  # words are those that BLEU counts: two characters each
        (["He left!!", "No, thanks."], False),  # punctuation counts
        (["house", "bread", SENTENCE], True),  # most lines decide, and not how long the others are
        (["house", SENTENCE], False),
    ],
)
def test_most_lines_decide_by_the_words_that_bleu_counts(references: list[str], expected: bool) -> None:
    assert is_too_short_for_bleu(references) == expected


def test_tokens_count_as_they_stand() -> None:
    assert is_too_short_for_bleu(["He left!!", "No, thanks."], tokenized=True)
