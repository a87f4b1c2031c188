from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu, detokenized, scores, tokens_of, worst
from tests.metrics.test_script import CHINESE, JAPANESE, KOREAN, THAI

_LINES = st.lists(st.text("abc ", max_size=30), min_size=3, max_size=3)


def multi_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """What Moses' multi-bleu.perl computes: clipped n-gram precisions and a brevity penalty, no smoothing."""
    matched, total = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(4):
            grams = [
                Counter(zip(*(side.split()[i:] for i in range(n + 1)), strict=False))
                for side in (hypothesis, reference)
            ]
            matched[n] += sum((grams[0] & grams[1]).values())
            total[n] += sum(grams[0].values())
    lengths = [sum(len(line.split()) for line in side) for side in (hypotheses, references)]
    if not all(matched):
        return 0.0
    penalty = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * penalty * math.exp(sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4)


def lines(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choice("abcdefgh") for _ in range(rng.randint(5, 20))) for _ in range(count)]


def garbled(lines: list[str], noise: float, rng: random.Random) -> list[str]:
    return [" ".join("x" if rng.random() < noise else word for word in line.split()) for line in lines]


def corpus(seed: int, noise: float) -> tuple[list[str], list[str]]:
    """Translations of which a share of the words is wrong, and their references."""
    references = lines(random.Random(seed), 200)
    return garbled(references, noise, random.Random(seed + 1)), references


@given(_LINES, _LINES)
@example(*corpus(0, 0.2))
def test_tokenised_bleu_is_that_of_moses_on_any_text(hypotheses: list[str], references: list[str]) -> None:
    """Blank lines, spaces in a row and n-grams that never match included."""
    expected = pytest.approx(multi_bleu(hypotheses, references), abs=1e-6)
    assert bleu(hypotheses, references, tokenized=True) == expected
    assert scores(hypotheses, references, tokenized=True).measures["bleu_tokenized"] == expected


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
