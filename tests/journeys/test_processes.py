"""Training in two processes under torchrun, compared with one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.journeys.conftest import Command
from tests.journeys.test_planning import TINY, contents, recipe_of, steps
from tests.journeys.test_training import outcome

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
NO_DROPOUT = [
    *(f"{name}=0" for name in ("model.dropout", "attention_dropout", "relu_dropout", "embedding_dropout")),
    "word_dropout=0",
]


# `qknorm`, but with Ctrl-C for torchrun in the middle of update 11, which ends when the signal has come back.
INTERRUPTED = """
import os, signal, time
from qknorm.cli import main
from qknorm.training.trainer import Trainer

step = Trainer._step

def interrupted(trainer, *arguments):
    if trainer.progress.step + 1 == 11:
        if os.environ["RANK"] == "0":
            os.kill(os.getppid(), signal.SIGINT)
        while not trainer.interruption.requested:
            time.sleep(0.01)
    step(trainer, *arguments)

Trainer._step = interrupted
main()
"""


# `qknorm`, but it says so when the interpreter is taken apart, as threads that torch leaves behind cannot bear.
TAKEN_APART = """
import atexit
from qknorm.cli import main

atexit.register(print, "taken apart")
main()
"""


def run_two(*arguments: str, cwd: Path, program: Sequence[str] = ("-m", "qknorm")) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TORCHRUN, *program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_from_the_same_batches(workplace: Path, command: Command) -> None:
    """Two batches per process and update against four: every token weighs the same. They end before the interpreter
    is taken apart."""
    alone = command("train", "recipe.yaml", "name=one", "accumulate=4", *NO_DROPOUT)
    assert alone.code == 0, alone.errors
    (workplace / "taken_apart.py").write_text(TAKEN_APART)
    two = run_two(
        "train", "recipe.yaml", "name=two", "accumulate=2", *NO_DROPOUT, cwd=workplace, program=["taken_apart.py"]
    )
    assert two.returncode == 0, two.stderr
    assert "taken apart" not in two.stdout
    assert two.stdout.count("test: BLEU") == 1  # the first process alone speaks
    ours, theirs = (outcome(workplace / "runs" / name)[2] for name in ("one", "two"))
    assert [line["step"] for line in theirs] == [8, 16, 24]
    for mine, yours in zip(ours, theirs, strict=True):
        for key in ("train_loss", "dev_loss", "lr"):
            assert yours[key] == pytest.approx(mine[key], rel=1e-5)
    weights = [
        load_file(workplace / "runs" / name / "checkpoints" / "step-000024" / "model.safetensors")
        for name in ("one", "two")
    ]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_that_were_interrupted_go_on_exactly(workplace: Path) -> None:
    """With dropouts, so that the random state of each process matters. torchrun passes Ctrl-C on to both."""
    whole = run_two("train", "recipe.yaml", cwd=workplace)
    assert whole.returncode == 0, whole.stderr

    (workplace / "interrupted.py").write_text(INTERRUPTED)
    stopped = run_two("train", "recipe.yaml", "name=other", cwd=workplace, program=["interrupted.py"])
    hint = "Go on with: torchrun --nproc-per-node 2 -m qknorm train runs/other --resume"
    assert hint in stopped.stdout, stopped.stderr
    trained = workplace / "runs" / "other"
    assert "step-000010" < (trained / "checkpoints" / "last").read_text() < "step-000016"

    done = run_two("train", "runs/other", "--resume", cwd=workplace)
    assert done.returncode == 0, done.stderr
    assert "going on after update" in done.stdout
    assert outcome(trained) == outcome(workplace / "runs" / "small")


@pytest.mark.slow
def test_two_processes_prolong_a_run_by_one_measurement(workplace: Path, command: Command) -> None:
    planned = ("--src", "train.en", "--tgt", "train.gl", "--minutes", "1", "max_updates=40", "stop_after=1000", *TINY)
    first = run_two("train", *planned, cwd=workplace)
    assert first.returncode == 0, first.stderr
    run = workplace / "runs" / "train"
    before = contents(run)
    alone = command("train", "runs/train", "--minutes", "1")
    assert alone.code == 2
    assert "was saved by 2 processes, there are 1 now" in alone.errors
    assert contents(run) == before
    done = run_two("train", "runs/train", "--minutes", "0.3", cwd=workplace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("before the learning rate fell") == 1
    assert steps(run)[-1] == recipe_of(run)["training"]["max_updates"]


@pytest.mark.slow
def test_what_is_wrong_is_said_once(workplace: Path) -> None:
    (workplace / "train.gl").unlink()
    done = run_two("train", "recipe.yaml", cwd=workplace)
    assert done.returncode != 0
    messages = [line for line in done.stderr.splitlines() if line.startswith("qknorm: ")]
    assert messages == ["qknorm: train.gl does not exist"]
    assert "RuntimeError" not in done.stderr
