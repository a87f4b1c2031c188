"""Training in two processes under torchrun, compared with one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.journeys.test_command import run
from tests.journeys.test_training import outcome

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "qknorm"]
NO_DROPOUT = [
    *(f"{name}=0" for name in ("model.dropout", "attention_dropout", "relu_dropout", "embedding_dropout")),
    "word_dropout=0",
]


def run_two(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TORCHRUN, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_processes_learn_what_one_learns_from_the_same_batches(workplace: Path) -> None:
    """Two batches per process and update against four: every token weighs the same."""
    one = run("train", "recipe.yaml", "name=one", "accumulate=4", *NO_DROPOUT, cwd=workplace)
    assert one.returncode == 0, one.stderr
    two = run_two("train", "recipe.yaml", "name=two", "accumulate=2", *NO_DROPOUT, cwd=workplace)
    assert two.returncode == 0, two.stderr
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
    settings = ["max_updates=240", "validate_every=80"]
    whole = run_two("train", "recipe.yaml", *settings, cwd=workplace)
    assert whole.returncode == 0, whole.stderr

    command = [*TORCHRUN, "train", "recipe.yaml", "name=other", *settings]
    process = subprocess.Popen(command, cwd=workplace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    trained = workplace / "runs" / "other"
    while process.poll() is None and not list(trained.glob("checkpoints/step-*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert "Go on with: torchrun --nproc-per-node 2 -m qknorm train runs/other --resume" in output, errors

    done = run_two("train", "runs/other", "--resume", cwd=workplace)
    assert done.returncode == 0, done.stderr
    assert "going on after update" in done.stdout
    assert outcome(trained) == outcome(workplace / "runs" / "small")


@pytest.mark.slow
def test_what_is_wrong_is_said_once(workplace: Path) -> None:
    (workplace / "train.gl").unlink()
    done = run_two("train", "recipe.yaml", cwd=workplace)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("qknorm: ")]
    assert said == ["qknorm: train.gl does not exist"]
    assert "RuntimeError" not in done.stderr
