from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from qknorm.errors import InputError
from qknorm.evaluation.scores import bleu
from qknorm.evaluation.significance import Method, compare, holm, standings
from tests.evaluation.test_scores import corpus

METHODS: list[Method] = ["bootstrap", "randomization"]


def references(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choice("abcdefgh") for _ in range(rng.randint(5, 20))) for _ in range(count)]


def garbled(lines: list[str], noise: float, rng: random.Random) -> list[str]:
    return [" ".join("x" if rng.random() < noise else word for word in line.split()) for line in lines]


def trained(lines: list[str], noise: float, seeds: int, rng: random.Random) -> list[list[str]]:
    """Runs of one system: each seed is better or worse by chance."""
    return [garbled(lines, noise + rng.gauss(0, 0.03), rng) for _ in range(seeds)]


@pytest.mark.parametrize("method", METHODS)
class TestTwoModels:
    def test_a_clear_difference_is_significant(self, method: Method) -> None:
        worse, expected = corpus(0, 0.3)
        better, _ = corpus(0, 0.1)
        baseline, other = compare({"worse": [worse], "better": [better]}, expected, True, method, trials=1000)
        assert (baseline.p_value, baseline.difference, baseline.bleu_sd, baseline.seeds) == (None, None, None, 1)
        assert other.p_value is not None
        assert other.p_value < 0.01
        assert baseline.low < baseline.bleu < baseline.high < other.low < other.high
        assert other.difference_low is not None
        assert other.difference_high is not None
        assert 0 < other.difference_low < other.bleu - baseline.bleu < other.difference_high
        assert other.bleu == pytest.approx(bleu(better, expected, tokenized=True))

    @pytest.mark.parametrize("script", ["的一是不了人我在", "のはにをたがでと", "กขคงจฉชซ"], ids=["zh", "ja", "th"])
    def test_a_clear_difference_is_significant_where_there_are_no_spaces(self, method: Method, script: str) -> None:
        def written(lines: list[str]) -> list[str]:
            return [line.translate(str.maketrans("abcdefgh", script, " ")) for line in lines]

        (worse, expected), (better, _) = (map(written, corpus(0, noise)) for noise in (0.3, 0.1))
        baseline, other = compare({"worse": [worse], "better": [better]}, expected, False, method, trials=1000)
        assert 0 < baseline.bleu < other.bleu < 100
        assert other.bleu == pytest.approx(bleu(better, expected, tokenized=False))
        assert other.p_value is not None
        assert other.p_value < 0.01

    def test_the_same_model_twice_does_not_differ(self, method: Method) -> None:
        lines, expected = corpus(0, 0.2)
        _, actual = compare({"one": [lines], "same": [lines]}, expected, True, method, trials=100)
        assert (actual.p_value, actual.difference) == (1.0, 0.0)

    def test_the_same_call_gives_the_same_answer(self, method: Method) -> None:
        lines, expected = corpus(0, 0.2)
        two, _ = corpus(0, 0.25)
        systems = {"one": [lines], "two": [two]}
        first, second = (compare(systems, expected, True, method, trials=500) for _ in range(2))
        assert first == second

    def test_sacrebleu_agrees(self, method: Method) -> None:
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

    def test_equal_systems_differ_in_one_case_of_twenty(self, method: Method) -> None:
        rng = random.Random(0)
        p_values = []
        for _ in range(100):
            expected = references(rng, 40)
            systems = {name: [garbled(expected, 0.2, rng)] for name in ("one", "two")}
            p_values.append(compare(systems, expected, True, method, samples=200, trials=200)[1].p_value)
        assert 0 < np.mean(np.array(p_values) < 0.05) < 0.12
        assert 0.35 < np.mean(np.array(p_values) < 0.5) < 0.65


@pytest.mark.parametrize("method", METHODS)
class TestSeveralSeeds:
    def share_significant(self, method: Method, noises: tuple[float, float], cases: int, seeds: int) -> float:
        rng, significant = random.Random(1), 0
        for _ in range(cases):
            expected = references(rng, 40)
            systems = {str(noise): trained(expected, noise, seeds, rng) for noise in noises}
            _, actual = compare(systems, expected, True, method, samples=100, trials=500)
            assert actual.p_value is not None
            significant += actual.p_value < 0.05
        return significant / cases

    def test_lucky_seeds_do_not_make_a_better_system(self, method: Method) -> None:
        assert self.share_significant(method, (0.2, 0.2 + 1e-9), cases=60, seeds=4) <= 0.1

    def test_a_better_system_is_found(self, method: Method) -> None:
        assert self.share_significant(method, (0.3, 0.1), cases=10, seeds=4) >= 0.8

    def test_the_same_runs_twice_do_not_differ(self, method: Method) -> None:
        lines, expected = corpus(0, 0.2)
        for runs in ([lines, lines], [lines, garbled(expected, 0.3, random.Random(0))]):
            _, actual = compare({"one": runs, "same": runs}, expected, True, method, samples=50, trials=50)
            assert (actual.p_value, actual.difference) == (1.0, 0.0)


def test_one_run_each_mistakes_luck_for_merit() -> None:
    """Why seeds matter: by their sentences alone, two seeds of one system often differ."""
    rng, p_values = random.Random(1), []
    for _ in range(40):
        expected = references(rng, 40)
        systems = {name: trained(expected, 0.2, 1, rng) for name in ("one", "two")}
        p_values.append(compare(systems, expected, True, samples=200)[1].p_value)
    assert np.mean(np.array(p_values) < 0.05) > 0.15


def test_seeds_are_summed_up() -> None:
    rng = random.Random(0)
    expected = references(rng, 50)
    systems = {name: trained(expected, 0.2, 3, rng) for name in ("one", "two")}
    for name, row in zip(systems, compare(systems, expected, True, samples=100), strict=True):
        scores = [bleu(run, expected, tokenized=True) for run in systems[name]]
        assert row.bleu == pytest.approx(np.mean(scores))
        assert row.bleu_sd == pytest.approx(np.std(scores, ddof=1))
        assert row.seeds == 3


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


def test_a_p_value_that_samples_cannot_make_smaller_is_a_bound() -> None:
    worse, expected = corpus(0, 0.3)
    better, _ = corpus(0, 0.05)
    _, far, near = compare({"worse": [worse], "better": [better], "same": [worse]}, expected, True, samples=99)
    assert far.p_is_bound
    assert far.p_value == pytest.approx(2 / 100)
    assert (near.p_is_bound, near.p_value) == (False, 1.0)


class TestStandings:
    def test_one_system_is_measured(self) -> None:
        lines, expected = corpus(0, 0.2)
        (row,) = standings({"one": [lines]}, expected, tokenized=True)
        assert row.p_value is None
        assert row.low < row.bleu < row.high

    def test_where_one_has_one_seed_the_first_of_each_is_taken(self) -> None:
        lines, expected = corpus(0, 0.2)
        two, _ = corpus(0, 0.25)
        mixed = standings({"one": [lines], "two": [two, lines]}, expected, tokenized=True)
        assert all(row.first_seeds_only for row in mixed)
        like = standings({"one": [lines], "two": [two]}, expected, tokenized=True)
        assert not any(row.first_seeds_only for row in like)
        assert [replace(row, first_seeds_only=False) for row in mixed] == like
        assert like == compare({"one": [lines], "two": [two]}, expected, tokenized=True)

    def test_a_method_may_be_chosen(self) -> None:
        lines, expected = corpus(0, 0.2)
        systems = {"one": [lines], "two": [corpus(0, 0.21)[0]]}
        found = standings(systems, expected, tokenized=True, method="randomization")
        assert found == compare(systems, expected, tokenized=True, method="randomization")
