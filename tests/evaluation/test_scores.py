from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu, detokenized, scores
from qknorm.evaluation.significance import Method, compare


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
    penalty = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * penalty * math.exp(sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4)


def corpus(seed: int, noise: float) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    references = [" ".join(rng.choice("abcdefgh") for _ in range(rng.randint(5, 20))) for _ in range(200)]
    garbled = random.Random(seed + 1)
    hypotheses = [" ".join("x" if garbled.random() < noise else word for word in line.split()) for line in references]
    return hypotheses, references


def test_tokenised_bleu_is_that_of_moses() -> None:
    hypotheses, references = corpus(0, 0.2)
    assert bleu(hypotheses, references, tokenized=True) == pytest.approx(multi_bleu(hypotheses, references), abs=1e-6)
    assert scores(hypotheses, references, tokenized=True)["bleu_tokenized"] == pytest.approx(
        multi_bleu(hypotheses, references), abs=1e-6
    )


def test_tokenised_text_is_joined_for_the_default_score() -> None:
    assert detokenized(["I &apos;m here , he said ."], "en") == ["I'm here, he said."]


def test_a_perfect_translation_has_perfect_scores() -> None:
    lines = ["The red house is big .", "I &apos;m here now , my friend ."]
    found = scores(lines, lines, tokenized=True)
    assert found["bleu"] == pytest.approx(100)
    assert found["chrf"] == pytest.approx(100)
    assert found["ter"] == 0
    assert found["lines"] == 2
    assert "tok:13a" in found["signature"]


def test_line_counts_must_agree() -> None:
    with pytest.raises(InputError, match="1 translations but 2 references"):
        scores(["a"], ["a", "b"], tokenized=False)
    with pytest.raises(InputError, match="nothing to score"):
        scores([], [], tokenized=False)


@pytest.mark.parametrize("method", ["bootstrap", "randomization"])
class TestCompare:
    def test_a_clear_difference_is_significant(self, method: Method) -> None:
        worse, references = corpus(0, 0.3)
        better, _ = corpus(0, 0.1)
        baseline, other = compare({"worse": worse, "better": better}, references, tokenized=True, method=method)
        assert baseline.p_value is None
        assert other.p_value is not None
        assert other.p_value < 0.01
        assert baseline.low < baseline.bleu < baseline.high < other.low < other.high

    def test_equally_good_systems_do_not_differ(self, method: Method) -> None:
        one, references = corpus(0, 0.2)
        rng = random.Random(11)
        other = [" ".join("x" if rng.random() < 0.2 else word for word in line.split()) for line in references]
        _, found = compare({"one": one, "other": other}, references, tokenized=True, method=method)
        assert found.p_value is not None
        assert found.p_value > 0.05

    def test_the_same_call_gives_the_same_answer(self, method: Method) -> None:
        one, references = corpus(0, 0.2)
        two, _ = corpus(0, 0.25)
        systems = {"one": one, "two": two}
        assert compare(systems, references, True, method) == compare(systems, references, True, method)


def test_comparisons_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(InputError, match="at least two systems"):
        compare({"one": ["a"]}, ["a"], tokenized=True)
    with pytest.raises(InputError, match="two has 2 lines but there are 1 references"):
        compare({"one": ["a"], "two": ["a", "b"]}, ["a"], tokenized=True)
