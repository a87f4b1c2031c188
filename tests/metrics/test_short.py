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


@pytest.mark.parametrize("references", [CHINESE, THAI, KOREAN, ["The shop is closed."], []])
def test_sentences_are_long_enough_in_every_script(references: list[str]) -> None:
    assert not is_too_short_for_bleu(references)


def test_words_are_those_that_bleu_counts() -> None:
    assert is_too_short_for_bleu(["房子", "面包", "读书"])  # two characters each
    assert not is_too_short_for_bleu(["He left!!", "No, thanks."])  # punctuation counts
    assert is_too_short_for_bleu(["He left!!", "No, thanks."], tokenized=True)


def test_most_lines_decide_and_not_how_long_the_others_are() -> None:
    sentence = "It is late , and the shop is closed . " * 5
    assert is_too_short_for_bleu(["house", "bread", sentence])
    assert not is_too_short_for_bleu(["house", sentence])
