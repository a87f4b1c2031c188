from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.data.textfiles import write_lines
from qknorm.errors import InputError
from qknorm.evaluation.wording import TOO_SHORT
from qknorm.experiments.sweep.grid import plan
from qknorm.experiments.sweep.results import RunResult, by_system, load_results
from qknorm.experiments.sweep.scores import answer, as_systems
from qknorm.experiments.sweep.views import summarise
from qknorm.metrics.table import METRICS
from qknorm.runs.recipe import Recipe, checked, save_recipe
from qknorm.tasks.table import TASKS
from tests.caches import new_cache
from tests.phrases import write_phrases
from tests.sweeps import TRANSLATORS, run


def test_a_sweep_over_translators(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(folder / "cache"))
    write_phrases(folder, train=200, held_out=8)
    (folder / "translators.yaml").write_text(TRANSLATORS)
    planned = plan(folder / "translators.yaml")
    assert [cell.name for cell in planned.cells] == [
        "heads-1_seed-1",
        "heads-2_seed-1",
        "heads-1_seed-2",
        "heads-2_seed-2",
    ]
    assert run(planned, folder / "out") == {}
    results = load_results(folder / "out")
    found = summarise(planned.about, results, folder / "out")
    (table,) = found.tables
    assert table.columns == ["", "test BLEU", "chrF", "best dev BLEU", "difference", "95 %", "p", "runs"]
    assert [(row[0], row[4] != "", row[-1]) for row in table.rows] == [("heads 1", False, "2"), ("heads 2", True, "2")]
    assert all(" ± " in row[1] for row in table.rows)
    assert "heads 2" in found.sentences[0]
    records = list(csv.DictReader((folder / "out" / "summary.csv").read_text().splitlines()))
    assert [(record["system"], record["runs"]) for record in records] == [("heads 1", "2"), ("heads 2", "2")]
    for record, heads in zip(records, (1, 2), strict=True):
        scores = [one.measured["bleu"] for one in results if one.settings["heads"] == heads]
        assert float(record["bleu"]) == pytest.approx(sum(scores) / 2)
    assert float(records[1]["difference"]) == pytest.approx(float(records[1]["bleu"]) - float(records[0]["bleu"]))
    assert r"heads 1 & " in (folder / "out" / "summary.tex").read_text()
    assert (folder / "out" / "summary.md").read_text().startswith("**Result.** heads 2")
    both = [",".join(str(folder / "out" / f"heads-{heads}_seed-{seed}") for seed in (1, 2)) for heads in (1, 2)]
    assert as_systems(str(folder / "out")) == [f"heads 1={both[0]}", f"heads 2={both[1]}"]
    rows = list(csv.DictReader((folder / "out" / "results.csv").read_text().splitlines()))
    assert list(rows[0]) == ["heads", "seed", *TASKS["translation"].measured, "status"]
    assert [row["updates"] for row in rows] == ["4"] * 4
    assert {float(row["bleu"]) for row in rows} == {result.measured["bleu"] for result in results}
    unfinished = [replace(one, status="missing") if one.folder.name == "heads-2_seed-2" else one for one in results]
    spoiled = [replace(one, measured=one.measured | {"chrf": 99.0}) if one.settings["seed"] == 2 else one
               for one in unfinished]  # fmt: skip
    (table,) = answer(spoiled).tables
    assert [row[2] for row in table.rows] == [f"{one.measured['chrf']:.2f}" for one in results[:2]], "of first seeds"
    assert [row[-1] for row in table.rows] == ["1", "1"]


def scored(folder: Path, name: str, references: list[str], **settings: object) -> RunResult:
    """A finished translator that said what it should have said."""
    run = folder / name
    (run / "test").mkdir(parents=True)
    save_recipe(checked(Recipe, {"data": {"corpus": "phrasebook-en-gl"}}, ""), run / "recipe.yaml")
    for part in ("hypotheses", "references", "source"):
        write_lines(run / "test" / f"{part}.txt", references)
    measured = dict.fromkeys((*METRICS, "best_dev_bleu"), 1.0)
    return RunResult(run, "translation", dict(settings), "done", measured)


LINES = ["the house is red .", "the cat sees the dog ."]


def test_the_first_system_of_the_plan_is_what_others_are_compared_with(folder: Path) -> None:
    """Where its first run had failed, another system took its place, and every sign changed."""
    results = [
        scored(folder, f"{norm}-{seed}", LINES, qk_norm=norm, seed=seed) for seed in (1, 2) for norm in ("none", "lp")
    ]
    assert results[0].settings == {"qk_norm": "none", "seed": 1}
    failed = [replace(results[0], status="failed"), *results[1:]]
    assert list(by_system(failed)) == ["qk_norm none", "qk_norm lp"]
    missing = [replace(one, status="failed") if one.settings["qk_norm"] == "none" else one for one in results]
    found = answer(missing)
    assert found.sentences == [
        "Nothing is compared: no run of qk_norm none, which the others are compared with, is done."
    ]
    assert found.numbers == {"comparisons": []}


def test_systems_that_were_tested_on_different_sentences_are_not_compared_and_that_is_said(folder: Path) -> None:
    results = [
        scored(folder, name, lines, corpus=name) for name, lines in (("one", LINES), ("other", list(reversed(LINES))))
    ]
    found = answer(results)
    assert found.sentences == [
        "Nothing is compared: these runs were not tested on the same sentences; compare those that were with: "
        "qknorm compare."
    ]
    assert [row[0] for row in found.tables[0].rows] == ["corpus one", "corpus other"], "each still has its scores"


def test_of_lines_too_short_for_bleu_nobody_is_called_better(folder: Path) -> None:
    for lines, says_so in ((["house", "red dog", "cat"], True), (LINES, False)):
        results = [scored(folder / str(says_so), norm, lines, qk_norm=norm) for norm in ("none", "lp")]
        assert (answer(results).sentences == [TOO_SHORT]) is says_so


def test_language_models_are_not_compared_by_bleu(folder: Path) -> None:
    planned = plan(folder / "tiny.yaml", None, ["p=2", "folds=null"])
    run(planned, folder / "out")
    with pytest.raises(InputError, match=r"holds language models.* summary.md"):
        as_systems(str(folder / "out"))
    assert as_systems("other") == ["other"]
