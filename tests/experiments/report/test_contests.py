from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qknorm.experiments.report.collect import TrainedTranslator, collect
from qknorm.experiments.report.contests import contests_of, systems_of
from qknorm.runs.contents import Scores
from qknorm.runs.recipe import Recipe, checked, merged


@pytest.fixture
def run(trained_run: Path) -> TrainedTranslator:
    (result,) = collect(trained_run).translators
    return result


def varied(run: TrainedTranslator, name: str, seed: int = 1, **model: Any) -> TrainedTranslator:
    changes = {"name": name, "training": {"seed": seed}, "model": model}
    return replace(run, name=name, recipe=checked(Recipe, merged(run.recipe.model_dump(), changes), name))


def test_seeds_become_one_system(run: TrainedTranslator) -> None:
    runs = [varied(run, f"{name}-seed-{seed}", seed, p=p) for name, p in (("a", 2.0), ("b", 3.0)) for seed in (1, 2)]
    systems = systems_of(runs)
    assert [(system.name, len(system.runs)) for system in systems] == [("a", 2), ("b", 2)]
    (contest,) = contests_of(systems)
    assert [entry.compared.seeds for entry in contest.entries] == [2, 2]


def test_where_a_system_has_one_seed_the_first_of_each_are_compared(run: TrainedTranslator) -> None:
    systems = systems_of([varied(run, "a1", 1), varied(run, "a2", 2), varied(run, "b", 1, p=3.0)])
    assert [system.name for system in systems] == ["a", "b"]
    (contest,) = contests_of(systems)
    assert all(row.first_seeds_only for row in contest.compared.rows)
    assert [entry.compared.seeds for entry in contest.entries] == [1, 1]


def test_plain_attention_comes_first(run: TrainedTranslator) -> None:
    assert [system.name for system in systems_of([varied(run, "a"), varied(run, "b", qk_norm="none")])] == ["b", "a"]


def test_among_three_systems_p_values_are_corrected(run: TrainedTranslator) -> None:
    (test,) = run.tests
    worse = replace(test, hypotheses=[line.rpartition(" ")[0] for line in test.hypotheses])
    others = [replace(varied(run, name, p=p), tests=[worse]) for name, p in (("b", 3.0), ("c", 4.0))]
    p_values = []
    for rivals in (others[:1], others):
        (contest,) = contests_of(systems_of([run, *rivals]))
        p_values.append(contest.entries[1].compared.p_value or 1.0)
    assert p_values[1] == pytest.approx(min(1.0, 2 * p_values[0]))


def test_different_test_sets_are_not_compared(run: TrainedTranslator) -> None:
    (test,) = run.tests
    other = replace(
        varied(run, "b", p=3.0), tests=[replace(test, references=[*test.references[:-1], "something else"])]
    )
    contests = contests_of(systems_of([run, other]))
    assert [[entry.system.name for entry in contest.entries] for contest in contests] == [["phrases"], ["b"]]
    assert contests[0].entries[0].compared.p_value is None


def test_the_best_of_a_glossary_is_the_one_with_the_most_chrf(run: TrainedTranslator) -> None:
    """BLEU of lines of a word is 0 for all."""
    words = ["casa", "pan", "mar", "sal"]
    tests = [
        replace(run.tests[0], sources=words, references=words, hypotheses=[*words[:right], *["x"] * (4 - right)],
                scores=Scores(measures={"chrf": 25.0 * right}, lines=4, signature=""))
        for right in (1, 3)
    ]  # fmt: skip
    runs = [
        replace(varied(run, name, p=p), tests=[test]) for name, p, test in zip("ab", (2.0, 3.0), tests, strict=True)
    ]
    (contest,) = contests_of(systems_of(runs))
    assert contest.compared.is_too_short
    assert [row.bleu for row in contest.compared.rows] == [0, 0]
    assert contest.best.system.name == "b"
    (usual,) = contests_of(systems_of([run]))
    assert not usual.compared.is_too_short
