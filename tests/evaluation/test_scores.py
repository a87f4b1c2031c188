from __future__ import annotations

import math
import random

import pytest

from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu, detokenized, scores, tokens_of, worst
from tests.metrics.test_script import CHINESE, JAPANESE, KOREAN, THAI


def lines(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choice("abcdefgh") for _ in range(rng.randint(5, 20))) for _ in range(count)]


def garbled(lines: list[str], noise: float, rng: random.Random) -> list[str]:
    return [" ".join("x" if rng.random() < noise else word for word in line.split()) for line in lines]


def corpus(seed: int, noise: float) -> tuple[list[str], list[str]]:
    """Translations of which a share of the words is wrong, and their references."""
    references = lines(random.Random(seed), 200)
    return garbled(references, noise, random.Random(seed + 1)), references


@pytest.mark.parametrize(
    ("hypotheses", "references", "expected"),
    [
        (["a b c d e", ""], ["a b c d f", ""], (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)),
        (["a b c d"], ["a b c d e f"], math.exp(1 - 6 / 4)),  # too short
        (["a a a a b c"], ["a b c d e f"], 0),  # no four in a row, and nothing is smoothed
        (["a a b c d e  f"], ["a b c d e f g"], (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** (1 / 4)),  # each a counts once
    ],
)
def test_tokenised_bleu_is_that_of_moses(hypotheses: list[str], references: list[str], expected: float) -> None:
    """multi-bleu.perl: clipped precisions of one to four words in a row, and a penalty for what is too short."""
    assert bleu(hypotheses, references, tokenized=True) == pytest.approx(100 * expected)
    assert scores(hypotheses, references, tokenized=True).measures["bleu_tokenized"] == pytest.approx(100 * expected)


def test_tokenised_text_is_joined_for_the_default_score() -> None:
    assert detokenized(["I &apos;m here , he said ."], "en") == ["I'm here, he said."]


ENGLISH = ["The red house is big .", "I &apos;m here now , my friend ."]


@pytest.mark.parametrize(
    ("lines", "tokenized", "cut"),
    [
        (ENGLISH, True, "13a"),
        (CHINESE, False, "zh"),
        (JAPANESE, False, "char"),
        (THAI, False, "char"),
        (KOREAN, False, "13a"),
    ],
)
def test_a_perfect_translation_is_perfect_in_every_script(lines: list[str], tokenized: bool, cut: str) -> None:
    result = scores(lines, lines, tokenized, language="en" if tokenized else "xx")
    perfect = {"bleu": 100, "bleu_tokenized": 100, "chrf": 100, "chrf++": 100, "ter": 0}
    assert result.measures == pytest.approx(perfect)
    assert result.lines == len(lines)
    assert f"|tok:{cut}|" in result.signature


def test_tokens_of_a_script_without_spaces_are_joined_for_the_default_score() -> None:
    """BLEU of the text is that of characters, wherever somebody cut it into words; that of tokens is of these words."""
    words, characters = ["我 喜欢 读书 ， 也 喜欢 音乐"], ["我 喜 欢 读 书 ， 也 喜 欢 音 乐"]
    result = scores(characters, words, tokenized=True, language="zh")
    assert result.bleu == pytest.approx(100)
    assert "|tok:zh|" in result.signature
    assert result.measures["bleu_tokenized"] < 10


def test_the_references_alone_decide_how_a_text_is_cut() -> None:
    """A system that answers in another language is measured as the others are."""
    english = ["I like reading.", "The weather is fine.", "He came yesterday."]
    assert "|tok:zh|" in scores(english, CHINESE, tokenized=False).signature
    assert "|tok:13a|" in scores(CHINESE, english, tokenized=False).signature
    assert tokens_of(["我 like 书"], CHINESE, "zh") == ["我 like 书"]


def test_line_counts_must_agree() -> None:
    with pytest.raises(InputError, match="1 translations but 2 references"):
        scores(["a"], ["a", "b"], tokenized=False)
    with pytest.raises(InputError, match="nothing to score"):
        scores([], [], tokenized=False)


def test_the_worst_translations_come_first() -> None:
    references = ["The house is red.", "I eat bread.", "It is late."]
    assert [row for row, _ in worst(["The house is red.", "xyz", "It is so late."], references, 2)] == [1, 2]
