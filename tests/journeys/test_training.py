"""Train, interrupt, go on, translate, score: through the command line, on the embedded corpus."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qknorm.data.subwords import Subwords
from qknorm.data.textfiles import read_lines, write_lines
from tests.journeys.conftest import Command


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outcome(folder: Path) -> tuple[str, str, list[dict[str, Any]]]:
    """What must not depend on interruptions: the weights, the optimiser's memory, and the metrics but for times."""
    metrics = [json.loads(line) for line in read_lines(folder / "metrics.jsonl")]
    for line in metrics:
        del line["seconds"], line["tokens_per_second"]
    last = folder / "checkpoints" / (folder / "checkpoints" / "last").read_text().strip()
    return digest(last / "model.safetensors"), digest(last / "optimizer.safetensors"), metrics


# `qknorm`, but with a signal to itself in the middle of an update.
SIGNALLED = """
import os, signal, sys
from qknorm.cli import main
from qknorm.training.trainer import Trainer

number, update, step = signal.Signals[sys.argv.pop(1)], int(sys.argv.pop(1)), Trainer._step

def signalled(trainer, *arguments):
    if trainer.progress.step + 1 == update:
        os.kill(os.getpid(), number)
    step(trainer, *arguments)

Trainer._step = signalled
main()
"""

# `qknorm`, but killed in the middle of writing the n-th file to disk.
KILLED_WHILE_WRITING = """
import os, signal, sys
from qknorm.cli import main

writes, fsync = int(sys.argv.pop(1)), os.fsync

def counted(file):
    global writes
    writes -= 1
    if writes == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(file)

os.fsync = counted
main()
"""


def run_changed(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.mark.slow
def test_a_run_that_was_killed_again_and_again_ends_with_the_same_bits(workplace: Path, command: Command) -> None:
    """kill -9 in the middle of a random update, then in the middle of random files of checkpoints."""
    settings = ["bpe_dropout=0.1"]
    done = command("train", "recipe.yaml", *settings)
    assert done.code == 0, done.errors

    rng, killed = random.Random(0), workplace / "runs" / "killed"
    update = str(rng.randint(9, 16))  # after the first validation, before the second
    first = run_changed(SIGNALLED, "SIGKILL", update, "train", "recipe.yaml", "name=killed", *settings, cwd=workplace)
    assert first.returncode == -signal.SIGKILL, first.stderr

    for _ in range(3):
        # One file when it goes on (the metrics), then five at each validation: a checkpoint's three, `last` and `best`.
        writes = str(rng.randint(1, 6))
        again = run_changed(KILLED_WHILE_WRITING, writes, "train", "runs/killed", "--resume", cwd=workplace)
        assert again.returncode == -signal.SIGKILL, again.stderr
    done = command("train", "runs/killed", "--resume")
    assert done.code == 0, done.errors
    assert outcome(killed) == outcome(workplace / "runs" / "small")
    assert not list(killed.glob("checkpoints/.saving-*"))


in_full_length = pytest.mark.skipif("QKNORM_TEST_FULL" not in os.environ, reason="minutes: QKNORM_TEST_FULL=1 runs it")


@pytest.mark.slow
@pytest.mark.parametrize(("updates", "least"), [(250, 20), pytest.param(1400, 90, marks=in_full_length)])
def test_a_small_model_learns_the_phrasebook(workplace: Path, command: Command, updates: int, least: int) -> None:
    """The recipe of the README: 92.6 BLEU, and 34.7 after a sixth of it."""
    recipe = Path(__file__).parents[2] / "recipes" / "phrasebook.yaml"
    done = command("train", str(recipe), f"max_updates={updates}", f"validate_every={updates}")
    assert done.code == 0, done.errors
    scores = json.loads((workplace / "runs" / "phrasebook" / "test" / "scores.json").read_text())
    assert scores["bleu"] >= least


def test_a_finished_run_tells_what_it_learned_and_is_not_begun_again(small_run: Path, command: Command) -> None:
    lines = [json.loads(line) for line in read_lines(small_run / "metrics.jsonl")]
    assert [line["step"] for line in lines] == [8, 16, 24]
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]
    assert len(lines[0]["scales"]) == 3  # one g for each of the three attentions
    kept, text = json.loads((small_run / "test" / "scores.json").read_text()), str(small_run / "test")
    assert (kept["lines"], kept["signature"].startswith("nrefs:1")) == (24, True)
    scored = json.loads(command("score", f"{text}/hypotheses.txt", f"{text}/references.txt", "--json").out)
    assert scored["bleu"] == pytest.approx(kept["bleu"])
    again = command("train", "recipe.yaml")
    assert (again.code, "holds a run already" in again.errors) == (2, True)


def test_damaged_checkpoints_are_passed_over(small_run: Path, command: Command) -> None:
    """Where none is whole, the run starts again, and says so."""
    expected = outcome(small_run)
    newest = small_run / "checkpoints" / "step-000024" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    done = command("train", "runs/small", "--resume")
    assert "step-000024 is damaged" in done.errors
    assert "going on after update 16" in done.out
    assert (done.code, outcome(small_run)) == (0, expected)

    for state in small_run.glob("checkpoints/*/state.json"):
        state.unlink()
    done = command("train", "runs/small", "--resume")
    assert "step-000024 is damaged or incomplete\n" in done.errors
    assert "the checkpoint before it" not in done.errors
    assert "runs/small has no whole checkpoint: it starts from the beginning" in done.out
    assert (done.code, outcome(small_run)) == (0, expected)


def test_ctrl_c_saves_and_a_run_that_goes_on_ends_with_the_same_bits(
    workplace: Path, small_run: Path, command: Command
) -> None:
    """Commands to paste quote a folder with spaces."""
    stopped = run_changed(SIGNALLED, "SIGINT", "11", "train", "recipe.yaml", "name=my run", cwd=workplace)
    assert stopped.returncode == 130, stopped.stderr
    saved = re.search(r"Saved after update (\d+)\. Go on with: qknorm train 'runs/my run' --resume\n", stopped.stdout)
    assert saved, stopped.stdout
    run = workplace / "runs" / "my run"
    assert (run / "checkpoints" / "last").read_text() == f"step-{int(saved[1]):06d}\n"
    assert 11 <= int(saved[1]) < 16  # at once, and not at the next validation
    changed = command("train", "runs/my run", "seed=2", "--resume")
    assert "go on with: qknorm train 'runs/my run' --resume" in changed.errors
    done = command("train", "runs/my run", "--resume")
    assert f"going on after update {saved[1]}\n" in done.out
    assert outcome(run) == outcome(small_run)
    assert "qknorm translate 'runs/my run' FILE" in done.out
    assert "qknorm report 'runs/my run'" in done.out


def test_a_run_translates_while_it_still_learns(workplace: Path, small_run: Path, command: Command) -> None:
    """With its best weights so far; what it learns afterwards is not disturbed. The training waits in update 19."""
    arguments = ["SIGSTOP", "19", "train", "recipe.yaml", "name=learning"]
    process = [sys.executable, "-c", SIGNALLED, *arguments]
    with subprocess.Popen(process, cwd=workplace, stdout=subprocess.DEVNULL) as training:
        try:
            _, status = os.waitpid(training.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert len(list(read_lines(workplace / "runs" / "learning" / "metrics.jsonl"))) == 2
            told = command("translate", "runs/learning", "test.en")
            assert told.code == 0, told.errors
            assert told.out.count("\n") == len(list(read_lines(workplace / "test.en")))
        finally:
            training.send_signal(signal.SIGCONT)
        assert training.wait() == 0
    assert outcome(workplace / "runs" / "learning") == outcome(small_run)
    after = command("translate", "runs/learning", "test.en")
    assert after.out == command("translate", "runs/small", "test.en").out


@pytest.fixture
def refused(command: Command) -> Callable[..., str]:
    """The command `train` on bad input; returns the one sentence that it ends with."""

    def call(*arguments: str) -> str:
        done = command("train", *arguments)
        assert done.code == 2
        assert re.fullmatch("qknorm: [^\n]+\n", done.errors)
        return done.errors

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "nowhere.yaml does not exist"),
        (["memory.tmx"], "memory.tmx does not exist"),
        ([], "Give a recipe, or --src and --tgt"),
        (["recipe.yaml", "seed=[1, 2"], "seed: the value [1, 2 is not YAML"),
        (["--src", "a"], "--src and --tgt belong together"),
        (["recipe.yaml", "hedas=4"], "there is no key hedas; the nearest is heads"),
        (["recipe.yaml", "source=", "target=", "corpus=phrasebok"], "the nearest name is 'phrasebook-en-gl'"),
        (["recipe.yaml", "precision=fp16"], "fp16 needs a GPU"),
        (["recipe.yaml", "--resume"], "runs/small is not a run folder"),
        (["recipe.yaml", "name=."], "name=. cannot name a folder in runs; choose another, such as name=mine"),
        (["recipe.yaml", "name=.."], "name=.. cannot name a folder"),
        (["recipe.yaml", "name=../other"], "name=../other cannot name a folder"),
        (["recipe.yaml", "name=a/../../other"], "cannot name a folder"),
        (["recipe.yaml", "name=/elsewhere/other"], "name=/elsewhere/other cannot name a folder"),
        (["recipe.yaml", "name=''"], "name= cannot name a folder"),
        ([".", "--resume"], ". is not a run folder"),
        (["..", "--resume"], ".. is not a run folder"),
        (["--src", "train.en", "--tgt", "nowhere.gl"], "nowhere.gl does not exist"),
        (["--src", "train.en", "--tgt", "blank.gl"], "no pair of"),
    ],
)
def test_wrong_calls_get_one_sentence_and_leave_no_run(
    workplace: Path, refused: Callable[..., str], arguments: list[str], message: str
) -> None:
    write_lines(workplace / "blank.gl", [""] * 600)
    assert message in refused(*arguments)
    assert not list(workplace.glob("runs/*/recipe.yaml"))


def test_what_belongs_to_another_run_is_named(small_run: Path, refused: Callable[..., str]) -> None:
    for key, ours, changed in (("training.seed", "1", "2"), ("name", "small", "other")):
        assert f"was begun with {key}={ours}, not {changed}" in refused("runs/small", f"{key}={changed}", "--resume")
    other = Subwords.learn([line[::-1] for line in read_lines(Path("train.gl"))], 200, "raw")
    other.save(small_run / "tokenizer.json")
    assert "tokenizer.json is the vocabulary of another run" in refused("runs/small", "--resume")


MEMORIES = {
    "po": ('msgid "Hello {i}"\nmsgstr "Ola {i}"\n', "{}"),
    "tsv": ("Hello {i}\tOla {i}", "{}"),
    "jsonl": ('{{"number": {i}, "en": "Hello {i}", "pt-BR": "Ola {i}"}}', "{}"),
    "tmx": (
        '<tu><tuv lang="EN"><seg>Hello {i}</seg></tuv><tuv lang="gl"><seg>Ola {i}</seg></tuv></tu>',
        "<tmx><body>{}</body></tmx>",
    ),
}


def test_what_is_said_of_a_memory_works(workplace: Path, refused: Callable[..., str], command: Command) -> None:
    for ending, (entry, whole) in MEMORIES.items():
        memory = f"my {ending}.{ending}"
        (workplace / memory).write_text(whole.format("\n".join(entry.format(i=i) for i in range(40))))
        sentence = refused(memory)
        assert "holds text, not a recipe" in sentence
        imported, trained = re.findall(r"with: qknorm ((?:'[^']*'|[^,])+)", sentence.strip())
        for words, settings in ((imported, ()), (trained, ("max_updates=1", "dim=16"))):
            done = command(*shlex.split(words), *settings)
            assert done.code == 0, done.errors


def test_what_is_dropped_is_told_with_its_reason_and_can_be_kept(workplace: Path, command: Command) -> None:
    lines = [f"The house number {i}." for i in range(100)]
    lines = [*lines, *lines[:40], "Lisboa"]
    write_lines(workplace / "mine.en", lines)
    write_lines(workplace / "mine.gl", (line.replace("The house", "A casa") for line in lines))
    files = ("--src", "mine.en", "--tgt", "mine.gl", "max_updates=1", "dim=16")
    done = command("train", *files)
    assert done.code == 0, done.errors
    assert "141 pairs read: 41 dropped, 10 for dev, 10 for test, 80 to learn from; " in done.out
    run = workplace / "runs" / "mine"
    assert json.loads((run / "test" / "scores.json").read_text())["lines"] == 10
    assert not (run / "data").exists()
    assert "dropped: 40 duplicate, 1 source equals target; every line is in runs/mine/dropped.tsv" in done.out
    assert "warning: 41 of 141 pairs were dropped" in done.out
    rows = [line.split("\t")[:2] for line in read_lines(run / "dropped.tsv")]
    assert rows[1:] == [*([str(number), "duplicate"] for number in range(101, 141)), ["141", "source equals target"]]
    done = command("train", *files, "name=all", "keep_duplicates=true", "keep_copies=true", "max_ratio=null")
    assert done.code == 0, done.errors
    assert "dropped: " not in done.out
    assert "warning: " not in done.out
    done = command("train", "runs/all", "max_ratio=3", "--resume")
    assert "was begun with data.max_ratio=None, not 3.0" in done.errors


def test_doubts_about_a_text_are_said_and_training_goes_on(workplace: Path, command: Command) -> None:
    done = command("train", "recipe.yaml", "dev=[dev.gl, dev.en]", "test=[dev.en, dev.gl]", "max_updates=1")
    assert done.code == 0, done.errors
    assert (workplace / "runs" / "small" / "test" / "scores.json").exists()
    assert [line for line in done.out.splitlines() if line.startswith("warning: ")] == [
        "warning: the dev set has 24 pairs, fewer than 50: its score depends much on chance",
        "warning: the test set has 24 pairs, fewer than 50: its score depends much on chance",
        "warning: dev.gl has mostly words of train.gl: are the files of the dev set swapped?",
    ]
