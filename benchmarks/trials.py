"""A queue of training runs for choosing settings: dev sets only, one core each, results in a file that is committed.

    make trials [DATA=FOLDER] [JOBS=1]

docs/measured/queue.yaml lists the trials: a name, a corpus (a folder of DATA, or one that `qknorm data get` knows),
how many of its lines (all, if it does not say), the minutes, settings, and options such as [--mono-target, DATA/FILE];
with `swapped: true`, one target in twenty is that of another line; with `turned: true`, it is translated the other
way. Each is a `qknorm train --src … --tgt … --minutes N` with these settings and options. Its result is a line of
docs/measured/trials.jsonl; what has a line is not run again, so that a queue that was killed goes on, and one that
runs can be added to. No test set is read: the dev set takes its place, and is scored with a beam at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from benchmarks.alignment import with_noise
from qknorm.data import corpora
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.runs.translator_run import TranslatorRun
from qknorm.training.speed import operations_per_second

ROOT = Path(__file__).parents[1]
QUEUE, RESULTS = ROOT / "docs/measured/queue.yaml", ROOT / "docs/measured/trials.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the trials of docs/measured/queue.yaml that have no result yet.")
    parser.add_argument("--data", type=Path, help="folder of corpora, each with train and dev in two languages")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time, one core each")
    arguments = parser.parse_args()
    queue = Queue(QUEUE, RESULTS)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for worker in [pool.submit(work, queue, arguments.data) for _ in range(arguments.jobs)]:
            worker.result()


class Queue:
    """The trials that have no result yet. The file is read again for each, so that trials can be added meanwhile."""

    def __init__(self, trials: Path, results: Path) -> None:
        self._trials, self._results, self._lock = trials, results, threading.Lock()
        self._taken: set[str] = set()
        self._speed = operations_per_second(threads=1) / 1e9

    def take(self) -> dict[str, Any] | None:
        """The next trial, which nobody else gets; None if there is none."""
        with self._lock:
            lines = self._results.read_text(encoding="utf-8").splitlines() if self._results.exists() else []
            done = self._taken | {json.loads(line).get("name") for line in lines}
            trials: list[dict[str, Any]] = yaml.safe_load(self._trials.read_text(encoding="utf-8"))
            trial = next((trial for trial in trials if trial["name"] not in done), None)
            self._taken |= set() if trial is None else {trial["name"]}
            return trial

    def record(self, result: dict[str, Any]) -> None:
        line = json.dumps(result | {"gigaflops_of_a_core": round(self._speed)}, ensure_ascii=False)
        with self._lock, self._results.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


def work(queue: Queue, data: Path | None) -> None:
    """One trial after the other, until the queue is empty."""
    while (trial := queue.take()) is not None:
        queue.record(run(trial, data))


def run(trial: Mapping[str, Any], data: Path | None) -> dict[str, Any]:
    """Train once, and say what came out."""
    with tempfile.TemporaryDirectory() as scratch:
        train, dev = (files(trial["corpus"], split, data) for split in ("train", "dev"))
        if trial.get("turned"):
            train, dev = train[::-1], dev[::-1]
        if "lines" in trial:
            train = (first_lines(train[0], trial["lines"], scratch), first_lines(train[1], trial["lines"], scratch))
        if trial.get("swapped"):
            train = (train[0], with_swapped_lines(train[1], scratch))
        held_out = "[" + ",".join(map(str, dev)) + "]"
        command = [sys.executable, "-m", "qknorm", "train", "--src", str(train[0]), "--tgt", str(train[1])]
        command += ["--minutes", str(trial["minutes"]), "--runs", scratch, "name=trial", f"dev={held_out}"]
        command += [f"test={held_out}", *trial.get("settings", [])]
        command += [option.replace("DATA", str(data)) for option in trial.get("options", [])]
        log = Path(scratch) / "log"
        with log.open("wb") as file:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
            _, status, used = os.wait4(process.pid, 0)  # of this trial alone, whatever runs beside it
        if status:
            return {**trial, "error": log.read_text(encoding="utf-8").strip().splitlines()[-1]}
        cpu = (used.ru_utime + used.ru_stime) / 60
        return {**trial, "cpu_minutes": round(cpu, 1), **outcome(Path(scratch) / "trial")}


def files(corpus: str, split: str, data: Path | None) -> tuple[Path, Path]:
    """Source and target: of a folder such as ted-gl-en, whose name says the languages, or of a known corpus."""
    if data is not None and (data / corpus).is_dir():
        source, target = (data / corpus / f"{split}.{language}" for language in corpus.split("-")[-2:])
        return source.resolve(), target.resolve()
    return corpora.get(corpus).files(split)


def first_lines(file: Path, count: int, folder: str) -> Path:
    """A corpus as somebody has it who has less."""
    part = Path(folder) / file.name
    with file.open(encoding="utf-8", newline="\n") as lines:
        part.write_text("".join(islice(lines, count)), encoding="utf-8", newline="\n")
    return part


def with_swapped_lines(file: Path, folder: str) -> Path:
    """A target text in which some lines translate others."""
    path = Path(folder) / f"swapped{file.suffix}"
    lines, _ = with_noise(list(read_lines(file)), False, random.Random(1))
    write_lines(path, lines)
    return path


def outcome(run: Path) -> dict[str, Any]:
    trial = TranslatorRun.open(run)
    validations, training = trial.metrics(), trial.recipe.training
    by_pair = {test.folder.name: round(test.scores().bleu, 2) for test in trial.tests()}
    return {
        "peak": training.peak,
        "precision": training.precision,
        "updates": validations[-1].step,
        "dev_loss": round(min(line.dev_loss for line in validations if line.dev_loss is not None), 4),
        "dev_bleu_greedy": round(max(line.dev_bleu for line in validations if line.dev_bleu is not None), 2),
        "dev_bleu": by_pair.get("test", by_pair),  # of several pairs by their names
    }


if __name__ == "__main__":
    main()
