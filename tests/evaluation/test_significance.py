"""Comparisons of systems: what is significant, what is not, and what cannot be compared."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from scipy import stats

from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu
from qknorm.evaluation.significance import Method, compare, holm, standings
from tests.evaluation.test_scores import corpus, garbled
from tests.evaluation.test_scores import lines as drawn

both_methods = pytest.mark.parametrize("method", ["bootstrap", "randomization"])


def trained(lines: list[str], noise: float, seeds: int, rng: random.Random) -> list[list[str]]:
    """Runs of one system: each seed is better or worse by chance."""
    return [garbled(lines, noise + rng.gauss(0, 0.03), rng) for _ in range(seeds)]


@both_methods
@pytest.mark.parametrize(
    ("letters", "left_out"), [("abcdefgh", ""), ("的一是不了人我在", " "), ("กขคงจฉชซ", " ")], ids=["latin", "zh", "th"]
)
def test_a_clear_difference_is_significant_in_every_script(method: Method, letters: str, left_out: str) -> None:
    def written(lines: list[str]) -> list[str]:
        return [line.translate(str.maketrans("abcdefgh", letters, left_out)) for line in lines]

    (worse, expected), (better, _) = (map(written, corpus(0, noise)) for noise in (0.3, 0.1))
    baseline, other = compare({"worse": [worse], "better": [better]}, expected, False, method, trials=1000)
    assert (baseline.p_value, baseline.difference, baseline.bleu_sd, baseline.seeds) == (None, None, None, 1)
    assert other.p_value is not None
    assert other.p_value < 0.01
    assert 0 < baseline.low < baseline.bleu < baseline.high < other.low < other.high < 100
    assert other.bleu == pytest.approx(bleu(better, expected, tokenized=False))
    assert other.difference == pytest.approx(other.bleu - baseline.bleu)
    assert other.difference_low is not None
    assert other.difference_high is not None
    assert 0 < other.difference_low < other.bleu - baseline.bleu < other.difference_high


@both_methods
def test_the_same_runs_do_not_differ_and_every_call_says_so(method: Method) -> None:
    lines, expected = corpus(0, 0.2)
    for runs in ([lines], [lines, lines], [lines, corpus(0, 0.3)[0]]):
        first, second = (compare({"one": runs, "same": runs}, expected, True, method, 50, 50) for _ in range(2))
        assert (first[1].p_value, first[1].difference) == (1.0, 0.0)
        assert first == second


@both_methods
def test_sacrebleu_agrees(method: Method) -> None:
    lines, expected = corpus(0, 0.2)
    two = garbled(expected, 0.22, random.Random(3))
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    test = PairedTest(
        [("one", lines), ("two", two)],
        {"BLEU": BLEU(tokenize="none", force=True)},
        [expected],
        {"bootstrap": "bs", "randomization": "ar"}[method],
        2000,
    )
    theirs: list[Any] = test()[1]["BLEU"]
    ours = compare({"one": [lines], "two": [two]}, expected, True, method, samples=2000, trials=2000)
    assert [row.bleu for row in ours] == pytest.approx([result.score for result in theirs])
    assert ours[1].p_value == pytest.approx(theirs[1].p_value, abs=0.04)
    if method == "bootstrap":
        for row, result in zip(ours, theirs, strict=True):
            assert [row.low, row.high] == pytest.approx([result.mean - result.ci, result.mean + result.ci], abs=0.3)


@both_methods
def test_equal_systems_differ_in_one_case_of_twenty(method: Method) -> None:
    rng, p_values = random.Random(0), []
    for _ in range(100):
        expected = drawn(rng, 40)
        systems = {name: [garbled(expected, 0.2, rng)] for name in ("one", "two")}
        p_values.append(compare(systems, expected, True, method, samples=200, trials=200)[1].p_value)
    assert 0 < np.mean(np.array(p_values) < 0.05) < 0.12
    assert 0.35 < np.mean(np.array(p_values) < 0.5) < 0.65


@pytest.mark.parametrize(("noise", "cases", "shares"), [(0.2 + 1e-9, 60, (0, 0.1)), (0.1, 10, (0.8, 1))])
def test_exchanged_runs_find_a_better_system_and_not_lucky_seeds(
    noise: float, cases: int, shares: tuple[float, float]
) -> None:
    """How often intervals of several seeds are right is in test_intervals.py."""
    rng, p_values = random.Random(1), []
    for _ in range(cases):
        expected = drawn(rng, 40)
        systems = {"first": trained(expected, 0.2, 4, rng), "second": trained(expected, noise, 4, rng)}
        p_values.append(compare(systems, expected, True, "randomization", samples=2, trials=500)[1].p_value)
    assert shares[0] <= np.mean(np.array(p_values) < 0.05) <= shares[1]


def test_on_sentences_that_are_all_alike_several_seeds_are_compared_as_welch_did() -> None:
    rng, line = random.Random(0), "the cat sat on the mat and the dog sat on the log by the door of the house"
    expected = [line] * 20
    systems = {name: [garbled([line], 0.2, rng) * 20 for _ in range(3)] for name in ("one", "two")}
    first, second = ([bleu(run, expected, tokenized=True) for run in runs] for runs in systems.values())
    welch = stats.ttest_ind(second, first, equal_var=False)
    assert welch.pvalue < 1
    row = compare(systems, expected, True)[1]
    assert (row.difference_low, row.difference_high) == pytest.approx(tuple(welch.confidence_interval()))
    assert (row.bleu, row.bleu_sd, row.seeds) == pytest.approx((np.mean(second), np.std(second, ddof=1), 3))
    assert row.p_value == pytest.approx(welch.pvalue)
    assert not row.p_is_bound


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ({"one": [["a"]]}, "at least two systems"),
        ({"one": [["a"]], "two": [["a", "b"]]}, "two has 2 lines but there are 1 references"),
        ({"one": [["a"]], "two": [["a"], ["a"]]}, "one has one run but two has several"),
    ],
)
def test_comparisons_that_cannot_be_made_are_refused(systems: dict[str, list[list[str]]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(systems, ["a"], tokenized=True)
    with pytest.raises(InputError, match="references are empty"):
        compare({"one": [[]], "two": [[]]}, [], tokenized=True)


def test_holm_corrects_as_in_his_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_among_several_systems_p_values_are_corrected() -> None:
    lines, expected = corpus(0, 0.2)
    two, three = corpus(0, 0.26)[0], corpus(0, 0.25)[0]
    alone = [compare({"one": [lines], "other": [other]}, expected, True)[1].p_value or 0.0 for other in (two, three)]
    together = compare({"one": [lines], "two": [two], "three": [three]}, expected, True)
    assert [row.p_value for row in together[1:]] == holm(alone)


@both_methods
def test_a_p_value_that_samples_cannot_make_smaller_is_a_bound(method: Method) -> None:
    (worse, expected), (better, _) = corpus(0, 0.3), corpus(0, 0.05)
    systems = {"worse": [worse], "better": [better], "same": [worse]}
    _, far, near = compare(systems, expected, True, method, samples=99, trials=99)
    assert [row.p_value for row in (far, near)] == pytest.approx([2 / 100, 1.0])
    assert [row.p_is_bound for row in (far, near)] == [True, False]


def test_standings_measure_one_system_and_compare_several_by_as_many_seeds_as_each_has() -> None:
    lines, expected = corpus(0, 0.2)
    two, _ = corpus(0, 0.25)
    (row,) = standings({"one": [lines]}, expected, tokenized=True)
    assert row.p_value is None
    assert row.low < row.bleu < row.high
    like = standings({"one": [lines], "two": [two]}, expected, True, "randomization")
    assert like == compare({"one": [lines], "two": [two]}, expected, True, "randomization")
    mixed = standings({"one": [lines], "two": [two, lines]}, expected, True, "randomization")
    assert mixed == [replace(row, first_seeds_only=True) for row in like]
