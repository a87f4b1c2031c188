from __future__ import annotations

import json
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.sweep import grid as sweeps
from qknorm.experiments.sweep.figures import draw
from qknorm.experiments.sweep.grid import Sweep, plan
from qknorm.experiments.sweep.results import load_results, write_results
from qknorm.experiments.sweep.summary import summarise
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.screen import Screen
from tests.caches import new_cache
from tests.phrases import write_phrases

RECIPE = Path(__file__).parents[2] / "recipes" / "lp-shakespeare.yaml"
TINY = """
task: language
name: tiny
data: {file: text, folds: 2}
model: {layers: 1, heads: 2, dim: 8, context: 8, dropout: 0, p: [2, 3]}
training: {batch: 2, iterations: 4, warmup: 1, validate_every: 2, validation_windows: 3}
baselines: [{qk_norm: none}]
"""

TRANSLATORS = """
name: translators
data: {source: train.en, target: train.gl, dev: [dev.en, dev.gl], test: [test.en, test.gl], merges: 100}
model: {dim: 8, feed_forward: 8, encoder_layers: 1, decoder_layers: 1, heads: [1, 2]}
training: {budget: 256, schedule: cosine, peak: 0.01, warmup: 1, max_updates: 4, validate_every: 2, seed: [1, 2]}
decoding: {validation_beam_size: 1, extra_length: 5}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a line of some text\n" * 30)
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


def run(sweep: Sweep, folder: Path) -> dict[str, str]:
    """In this process: what is run, not where, is of interest."""
    return sweeps.run(sweep, folder, Screen(quiet=True), "local", 1, None)


@pytest.mark.parametrize(("size", "runs"), [("smoke", 45), ("small", 150), ("paper", 150)])
def test_the_second_papers_sweep_in_every_size(size: str, runs: int) -> None:
    planned = plan(RECIPE, size)
    assert planned.name == f"lp-shakespeare-{size}"
    assert len(planned.cells) == len({cell.name for cell in planned.cells}) == runs
    recipes = [cell.recipe for cell in planned.cells if isinstance(cell.recipe, LanguageRecipe)]
    assert {recipe.model.heads for recipe in recipes} == {6}
    assert len([recipe for recipe in recipes if recipe.model.qk_norm == "none"]) * 15 == runs
    assert [cell.settings["fold"] for cell in planned.cells] == sorted(cell.settings["fold"] for cell in planned.cells)
    layers = 2 if size == "smoke" else 6
    assert {recipe.model.layers for recipe in recipes} == {layers}


def test_the_paper_s_size_is_that_of_the_paper() -> None:
    recipe = plan(RECIPE, "paper").cells[0].recipe
    assert isinstance(recipe, LanguageRecipe)
    assert (recipe.model.dim, recipe.model.context, recipe.model.dropout) == (384, 256, 0.2)
    assert (recipe.training.batch, recipe.training.iterations) == (64, 5000)


def test_lists_may_be_given_on_the_command_line(folder: Path) -> None:
    planned = plan(folder / "tiny.yaml", None, ["p=[1, .inf]", "seed=[1,2,3]", "folds=null"])
    assert [cell.name for cell in planned.cells] == [
        *(f"p-{p}_seed-{seed}" for p in ("1", "inf") for seed in (1, 2, 3)), "qk_norm-none",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("p=[]", "model.p is an empty list"),
        ("p=[0.5, 2]", "model.p: Input should be greater than or equal to 1"),
        ("p=[2, 2]", "would run twice"),
        ("model.q=[1]", "there is no key model.q"),
        ("heads=[2, 3]", "must divide"),
        ("data.folds=1", "data.folds"),
        ("iteratons=3", "there is no key iteratons"),
    ],
)
def test_a_wrong_sweep_is_refused_before_any_run(folder: Path, change: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(folder / "tiny.yaml", None, [change])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: language", "task: translation", "there is no key data.file"),
        ("baselines:", "baseline:", "there is no key baseline"),
        ("[{qk_norm: none}]", "[{qk_nrm: none}]", "there is no key qk_nrm"),
        ("[{qk_norm: none}]", "[none]", "a baseline is keys and values"),
        ("name: tiny", "size: small", "has no size 'small'"),
    ],
)
def test_a_wrong_file_is_explained(folder: Path, old: str, new: str, message: str) -> None:
    (folder / "tiny.yaml").write_text(TINY.replace(old, new))
    with pytest.raises(InputError, match=message):
        plan(folder / "tiny.yaml")


def test_only_what_is_missing_is_computed(folder: Path) -> None:
    planned = plan(folder / "tiny.yaml")
    assert run(planned, folder / "out") == {}
    assert {result.status for result in load_results(folder / "out")} == {"done"}
    kept, lost = folder / "out" / "p-2_fold-00", folder / "out" / "p-3_fold-01"
    before, result = (kept / "result.json").stat(), json.loads((lost / "result.json").read_text())
    (lost / "result.json").unlink()
    (lost / "recipe.yaml").unlink()
    (lost / "metrics.jsonl").unlink()
    assert {result.status for result in load_results(folder / "out")} == {"done", "missing"}
    assert run(planned, folder / "out") == {}
    assert (kept / "result.json").stat() == before
    again = json.loads((lost / "result.json").read_text())
    assert again["best_val_loss"] == result["best_val_loss"]
    assert not list((folder / "out").glob("*/checkpoints"))


def test_a_run_that_fails_does_not_stop_the_others(folder: Path) -> None:
    failures = run(plan(folder / "tiny.yaml", None, ["peak=[0.001, 1.0e+38]", "p=2"]), folder / "out")
    assert set(failures) == {"peak-1e+38_fold-00", "peak-1e+38_fold-01"}
    assert "the loss is" in failures["peak-1e+38_fold-00"]
    results = load_results(folder / "out", failures)
    assert sorted(result.status for result in results) == ["done"] * 4 + ["failed"] * 2
    write_results(results, {}, folder / "out")
    lines = (folder / "out" / "results.csv").read_text().splitlines()
    assert lines[0] == "p,start,fold,peak,qk_norm,best_val_loss,final_val_loss,best_step,seconds,status"
    assert len(lines) == 7


def test_another_recipe_does_not_mix_with_finished_runs(folder: Path) -> None:
    run(plan(folder / "tiny.yaml", None, ["p=2"]), folder / "out")
    with pytest.raises(InputError, match="was made by another recipe"):
        run(plan(folder / "tiny.yaml", None, ["p=2", "iterations=5"]), folder / "out")


def test_a_sweep_over_translators(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(folder / "cache"))
    write_phrases(folder, train=200, held_out=8)
    (folder / "translators.yaml").write_text(TRANSLATORS)
    planned = plan(folder / "translators.yaml")
    assert [cell.name for cell in planned.cells] == [
        "heads-1_seed-1",
        "heads-1_seed-2",
        "heads-2_seed-1",
        "heads-2_seed-2",
    ]
    assert run(planned, folder / "out") == {}
    results = load_results(folder / "out")
    told = summarise(results, folder / "out")
    assert [line.split(" | ")[-1] for line in told.splitlines()[2:]] == ["2 |", "2 |"]
    lines = (folder / "out" / "results.csv").read_text().splitlines()
    assert lines[0] == "heads,seed,bleu,bleu_tokenized,chrf,best_dev_bleu,updates,seconds,status"
    assert [line.split(",")[6] for line in lines[1:]] == ["4"] * 4
    assert {float(line.split(",")[2]) for line in lines[1:]} == {result.measured["bleu"] for result in results}
    assert draw(results, folder / "figures") == []
