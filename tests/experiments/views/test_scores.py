from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.data.textfiles import write_lines
from qknorm.evaluation.wording import TOO_SHORT
from qknorm.experiments.compare import as_systems
from qknorm.experiments.experiment import Experiment, PlannedRun
from qknorm.experiments.results import RunResult
from qknorm.experiments.spanned import plan_sweep
from qknorm.experiments.views.scores import answer
from qknorm.experiments.views.table import summarise
from qknorm.metrics.table import METRICS
from qknorm.runs.recipe import Recipe, checked, save_recipe
from qknorm.tasks.table import TASKS
from tests.caches import new_cache
from tests.phrases import write_phrases
from tests.sweeps import TRANSLATORS, results_in, run


def test_a_sweep_over_translators(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(folder / "cache"))
    write_phrases(folder, train=200, held_out=8)
    (folder / "translators.yaml").write_text(TRANSLATORS)
    planned = plan_sweep(folder / "translators.yaml")
    assert [cell.name for cell in planned.cells] == [
        "heads-1_seed-1",
        "heads-2_seed-1",
        "heads-1_seed-2",
        "heads-2_seed-2",
    ]
    assert run(planned, folder / "out") == {}
    results = results_in(folder / "out")
    found = summarise(planned.experiment, folder / "out")
    (table,) = found.tables
    shown = ["test BLEU", "chrF", "best dev BLEU"]
    assert table.columns == ["system", *shown, "difference", "95 %", "p", "seeds", "hours"]
    assert [(row[0], row[4] != "", row[-2]) for row in table.rows] == [("heads 1", False, "2"), ("heads 2", True, "2")]
    assert all(" ± " in row[1] for row in table.rows)
    assert "heads 2" in found.sentences[0]
    records = list(csv.DictReader((folder / "out" / "summary.csv").read_text().splitlines()))
    assert [(record["system"], record["seeds"]) for record in records] == [("heads 1", "2"), ("heads 2", "2")]
    for record, heads in zip(records, (1, 2), strict=True):
        scores = [run.measured["bleu"] for run in results if run.settings["heads"] == heads]
        assert float(record["bleu"]) == pytest.approx(sum(scores) / 2)
    assert float(records[1]["difference"]) == pytest.approx(float(records[1]["bleu"]) - float(records[0]["bleu"]))
    assert r"heads 1 & " in (folder / "out" / "summary.tex").read_text()
    setting, result = (folder / "out" / "summary.md").read_text().split("\n\n")[:2]
    assert (setting, result[:19]) == ("**Setting.** Test BLEU is SacreBLEU of the text.", "**Result.** heads 2")
    both = [",".join(str(folder / "out" / f"heads-{heads}_seed-{seed}") for seed in (1, 2)) for heads in (1, 2)]
    assert as_systems(str(folder / "out")) == [f"heads 1={both[0]}", f"heads 2={both[1]}"]
    rows = list(csv.DictReader((folder / "out" / "results.csv").read_text().splitlines()))
    assert list(rows[0]) == ["heads", "seed", *TASKS["translation"].measured, "status"]
    assert [row["updates"] for row in rows] == ["4"] * 4
    assert {float(row["bleu"]) for row in rows} == {result.measured["bleu"] for result in results}
    unfinished = [replace(run, status="missing") if run.name == "heads-2_seed-2" else run for run in results]
    spoiled = [replace(run, measured=run.measured | {"chrf": 99.0}) if run.settings["seed"] == 2 else run
               for run in unfinished]  # fmt: skip
    (table,) = answer(planned.experiment, spoiled).tables
    assert [row[2] for row in table.rows] == [f"{run.measured['chrf']:.2f}" for run in results[:2]], "of first seeds"
    assert [row[-2] for row in table.rows] == ["1", "1"]


def scored(folder: Path, name: str, references: list[str], **settings: object) -> RunResult:
    """A finished translator that said what it should have said."""
    run = folder / name
    (run / "test").mkdir(parents=True)
    content = {"data": {"corpus": settings.get("text", "phrasebook-en-gl")}}
    save_recipe(checked(Recipe, content, ""), run / "recipe.yaml")
    for part in ("hypotheses", "references", "source"):
        write_lines(run / "test" / f"{part}.txt", references)
    measured = dict.fromkeys((*METRICS, "best_dev_bleu", "seconds"), 1.0)
    return RunResult(run, "translation", dict(settings), "done", measured, name=name)


def sweep_of(results: list[RunResult]) -> Experiment:
    cells = tuple(PlannedRun(name=run.name, settings=run.settings) for run in results)
    return Experiment(name="translators", task="translation", cells=cells)


LINES = ["the house is red .", "the cat sees the dog ."]


def test_the_first_system_of_the_plan_is_what_others_are_compared_with(folder: Path) -> None:
    """Where its first run had failed, another system took its place, and every sign changed."""
    results = [
        scored(folder, f"{norm}-{seed}", LINES, qk_norm=norm, seed=seed) for seed in (1, 2) for norm in ("none", "lp")
    ]
    failed = [replace(results[0], status="failed"), *results[1:]]
    found = answer(sweep_of(results), failed)
    assert [row["name"] for row in found.numbers["comparisons"]] == ["qk_norm none", "qk_norm lp"]
    missing = [replace(run, status="failed") if run.settings["qk_norm"] == "none" else run for run in results]
    found = answer(sweep_of(results), missing)
    assert found.sentences == [
        "Nothing is compared: no run of qk_norm none, which the others are compared with, is done."
    ]
    assert [(row[0], row[1]) for row in found.tables[0].rows] == [
        ("qk_norm none", "not run"), ("qk_norm lp", "100.00 ± 0.00"),
    ]  # fmt: skip
    assert found.records[1]["difference"] is None


def test_systems_that_were_tested_on_different_sentences_are_not_compared_and_that_is_said(folder: Path) -> None:
    texts = {"phrasebook-en-gl": LINES, "ted-gl-en": list(reversed(LINES))}
    results = [scored(folder, text, lines, text=text) for text, lines in texts.items()]
    found = answer(sweep_of(results), results)
    assert found.sentences == [
        "Nothing is compared: these runs were not tested on the same sentences; compare those that were with: "
        "qknorm compare."
    ]
    systems = [(row[0], row[1]) for row in found.tables[0].rows]
    assert systems == [(f"text {text}", "1.00") for text in texts], "each still has its scores"


def test_on_two_corpora_systems_are_compared_on_each(folder: Path) -> None:
    results = [
        scored(folder, f"{corpus}-{norm}", lines, corpus=corpus, text=corpus, qk_norm=norm)
        for corpus, lines in (("phrasebook-en-gl", LINES), ("multi30k-en-de", list(reversed(LINES))))
        for norm in ("none", "lp")
    ]
    found = answer(sweep_of(results), results)
    assert [sentence.split(":")[0] for sentence in found.sentences if sentence.startswith("On")] == [
        "On phrasebook-en-gl", "On multi30k-en-de",
    ]  # fmt: skip
    assert len([row for row in found.records if row["difference"] == 0]) == 2


def test_of_lines_too_short_for_bleu_nobody_is_called_better(folder: Path) -> None:
    for lines, says_so in ((["house", "red dog", "cat"], True), (LINES, False)):
        results = [scored(folder / str(says_so), norm, lines, qk_norm=norm) for norm in ("none", "lp")]
        assert (answer(sweep_of(results), results).sentences == [TOO_SHORT]) is says_so
