"""Train, interrupt, go on, generate, sweep: language models through the command line."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qknorm import LanguageModel
from qknorm.data.textfiles import read_lines
from qknorm.experiments.slurm import run_task
from tests.journeys.conftest import Command
from tests.journeys.test_command import run
from tests.journeys.test_processes import run_two
from tests.journeys.test_training import digest

RECIPE = """
task: language
name: tiny
data: {file: text}
model: {layers: 1, heads: 2, dim: 16, context: 16, dropout: 0.1, p: 3}
training: {batch: 4, iterations: 40, warmup: 5, peak: 0.01, validate_every: 10, validation_windows: 8}
"""
SWEEP = RECIPE.replace("text}", "text, folds: 2}").replace("p: 3", "p: [2, 3]") + "baselines: [{qk_norm: none}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def outcome(folder: Path) -> tuple[str, list[object]]:
    metrics = [json.loads(line) for line in read_lines(folder / "metrics.jsonl")]
    for line in metrics:
        del line["seconds"], line["tokens_per_second"], line["validation_seconds"]
    last = folder / "checkpoints" / (folder / "checkpoints" / "last").read_text().strip()
    return digest(last / "model.safetensors") + digest(last / "optimizer.safetensors"), metrics


def test_train_interrupt_go_on_and_generate(folder: Path, command: Command) -> None:
    done = command("train", "tiny.yaml")
    assert done.code == 0, done.errors
    trained = folder / "runs" / "tiny"
    expected, metrics = outcome(trained)
    assert [line["step"] for line in metrics] == [10, 20, 30, 40]  # type: ignore[index]
    assert metrics[-1]["val_loss"] < metrics[0]["val_loss"]  # type: ignore[index]
    assert len(metrics[0]["attention"][0]["entropy"]) == 2  # type: ignore[index]

    for checkpoint in (trained / "checkpoints").glob("step-000040/*"):
        checkpoint.unlink()
    done = command("train", "runs/tiny", "--resume")
    assert "going on after update 30" in done.out, done.errors
    assert outcome(trained) == (expected, metrics)

    done = command("translate", "runs/tiny", "text")
    assert done.code == 2
    assert done.errors == "qknorm: runs/tiny holds a language model, not a translator; try: qknorm generate runs/tiny\n"

    arguments = ["generate", "runs/tiny", "--prompt", "the ", "--tokens", "40", "--top-k", "5", "--seed", "1"]
    done = command(*arguments)
    assert done.code == 0, done.errors
    assert done.out == LanguageModel.load(trained).generate("the ", 40, 0.8, 5, seed=1) + "\n"
    done = command("generate", "runs/tiny", "--prompt", "the É")
    assert (done.code, done.out) == (2, "")
    assert "the character 'É'" in done.errors


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(folder: Path, command: Command) -> None:
    """They share the windows of each update, here 3 and 2."""
    settings = ["dropout=0", "batch=5"]
    alone = command("train", "tiny.yaml", "name=one", *settings)
    assert alone.code == 0, alone.errors
    two = run_two("train", "tiny.yaml", "name=two", *settings, cwd=folder)
    assert two.returncode == 0, two.stderr
    ours, theirs = (outcome(folder / "runs" / name)[1] for name in ("one", "two"))
    assert len(ours) == len(theirs) == 4
    for mine, yours in zip(ours, theirs, strict=True):
        for key in ("train_loss", "val_loss", "lr"):
            assert yours[key] == pytest.approx(mine[key], rel=1e-4)  # type: ignore[index]
    refused = run_two("train", "tiny.yaml", "name=three", "batch=1", cwd=folder)
    assert "training.batch (1) must be at least the number of processes (2)" in refused.stderr
    assert not (folder / "runs" / "three").exists()


# `qknorm`, but killed when the first run of a sweep is done and others are under way.
KILLED_AFTER_ONE_RUN = """
import os, signal
from qknorm.cli import main
from qknorm.experiments.display import Display

Display.finished = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


@pytest.mark.slow
def test_a_killed_sweep_goes_on(folder: Path, command: Command) -> None:
    killed = [sys.executable, "-c", KILLED_AFTER_ONE_RUN, "sweep", "sweep.yaml", "--jobs", "2"]
    done = subprocess.run(killed, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    out = folder / "runs" / "tiny"
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*/result.json")}
    assert kept

    again = command("sweep", "sweep.yaml", "--jobs", "1", "--json")
    assert again.code == 0, again.errors
    assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())
    printed = json.loads(again.out)
    assert len(printed["runs"]) == 6
    assert {row["status"] for row in printed["runs"]} == {"done"}
    assert "With 2 folds and 2 comparisons Wilcoxon's test cannot" in printed["paragraph"]
    with (out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["p"], row["start"], row["fold"]) for row in rows] == [
        ("2", "same", "0"), ("3", "same", "0"), ("", "none", "0"), ("2", "same", "1"), ("3", "same", "1"),
        ("", "none", "1"),
    ]  # fmt: skip
    assert all(float(row["best_val_loss"]) <= float(row["final_val_loss"]) for row in rows)
    assert len(list((out / "figures").glob("*.png"))) == 5


@pytest.mark.slow
def test_a_sweep_on_a_local_cluster(folder: Path) -> None:
    pytest.importorskip("distributed", reason="it is not installed: pip install 'qknorm[dask]'")
    settings = ["p=[2]", "iterations=4", "validate_every=2"]
    done = run("sweep", "sweep.yaml", *settings, "--backend", "dask", "--jobs", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(list((folder / "runs" / "tiny").glob("*/result.json"))) == 4


@pytest.mark.usefixtures("folder")
def test_slurm_gets_a_script_and_the_same_command_collects(command: Command) -> None:
    arguments = ["sweep", "sweep.yaml", "p=[2]", "folds=null", "--backend", "slurm", "--jobs", "1"]
    done = command(*arguments)
    assert done.code == 0, done.errors
    assert "--array=0-1%1\n" in Path("runs/tiny/slurm.sh").read_text()
    assert "0 of 2 runs are done in runs/tiny\nSubmit with: sbatch runs/tiny/slurm.sh\n2 runs are left" in done.out
    (listed,) = Path("runs/tiny").glob("slurm-*.json")
    for number in (0, 1):
        assert run_task(listed, number) is None
    done = command(*arguments)
    assert done.code == 0, done.errors
    assert "2 of 2 runs are done in runs/tiny" in done.out
    assert "sbatch" not in done.out


@pytest.mark.usefixtures("folder")
def test_a_failed_run_is_told_and_kept_apart(command: Command) -> None:
    done = command("sweep", "sweep.yaml", "p=[2]", "folds=null", "peak=[0.01, 1.0e+38]", "--jobs", "1")
    assert done.code == 1, done.errors
    assert "failed: p-2_peak-1e+38: InputError: the loss is" in done.out
    assert "2 of 4 runs are done in runs/tiny" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "sweep.yaml", "name=../elsewhere"], "name=../elsewhere cannot name a folder in runs"),
        (["train", "sweep.yaml"], "is a sweep of many runs; try: qknorm sweep sweep.yaml"),
        (["sweep", "sweep.yaml", "--gpus", "99"], "there is no GPU '99' on this machine"),
        (["sweep", "sweep.yaml", "--submit"], "--submit is for --backend slurm"),
        (["sweep", "sweep.yaml", "--address", "tcp://x"], "--address is for --backend dask"),
        (["sweep", "sweep.yaml", "--backend", "slurm", "--address", "x"], "--address is for --backend dask"),
        (
            ["sweep", "sweep.yaml", "--backend", "slurm", "--gpus", "0"],
            "--gpus is for this machine; SBATCH_GPUS=1 lets",
        ),
        (
            ["sweep", "sweep.yaml", "--backend", "dask", "--address", "tcp://x", "--gpus", "0"],
            "CUDA_VISIBLE_DEVICES=0 where a cluster's workers are started",
        ),
        (
            ["train", "shakespeare", "--minutes", "5"],
            "a language model is not planned by --minutes; its recipe says how long it is trained",
        ),
        (["generate", "nowhere"], "nowhere is not a run folder"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_calls_get_one_sentence(arguments: list[str], message: str, command: Command) -> None:
    done = command(*arguments)
    assert done.code == 2, done.out
    assert message in done.errors
    assert done.errors.count("\n") == 1
