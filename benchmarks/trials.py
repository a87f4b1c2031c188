"""A queue of training runs for choosing settings: dev sets only, one core each, results in a file that is committed.

    make trials [DATA=FOLDER] [JOBS=1]

docs/measured/queue.yaml lists the trials: a name, a corpus (a folder of DATA, or one that `qknorm data get` knows), the
minutes, and settings. Each is `qknorm train --src … --tgt … --minutes N` with these settings. Its result is a line of
docs/measured/trials.jsonl; what has a line is not run again, so that a queue that was killed goes on. No test set is
read: the dev set takes its place, and is scored with a beam at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from qknorm.data import corpora
from qknorm.training.speed import operations_per_second

ROOT = Path(__file__).parents[1]
QUEUE, RESULTS = ROOT / "docs/measured/queue.yaml", ROOT / "docs/measured/trials.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the trials of docs/measured/queue.yaml that have no result yet.")
    parser.add_argument("--data", type=Path, help="folder of corpora, each with train and dev in two languages")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time, one core each")
    arguments = parser.parse_args()
    done = {json.loads(line).get("name") for line in RESULTS.read_text().splitlines()} if RESULTS.exists() else set()
    trials = [trial for trial in yaml.safe_load(QUEUE.read_text()) if trial["name"] not in done]
    speed = operations_per_second(threads=1) / 1e9
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda trial: run(trial, arguments.data), trials):
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result | {"gigaflops_of_a_core": round(speed)}, ensure_ascii=False) + "\n")
            print(json.dumps(result, ensure_ascii=False), flush=True)


def run(trial: Mapping[str, Any], data: Path | None) -> dict[str, Any]:
    """Train once, and say what came out."""
    with tempfile.TemporaryDirectory() as scratch:
        train, dev = (files(trial["corpus"], split, data) for split in ("train", "dev"))
        held_out = "[" + ",".join(map(str, dev)) + "]"
        command = [sys.executable, "-m", "qknorm", "train", "--src", str(train[0]), "--tgt", str(train[1])]
        command += ["--minutes", str(trial["minutes"]), "--runs", scratch, "name=trial", f"dev={held_out}"]
        command += [f"test={held_out}", *trial.get("settings", [])]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        finished = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=ROOT
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if finished.returncode:
            return {**trial, "error": finished.stderr.strip().splitlines()[-1]}
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {**trial, "cpu_minutes": round(cpu / 60, 1), **outcome(Path(scratch) / "trial")}


def files(corpus: str, split: str, data: Path | None) -> tuple[Path, Path]:
    """Source and target: of a folder such as ted-gl-en, whose name says the languages, or of a known corpus."""
    if data is not None and (data / corpus).is_dir():
        source, target = (data / corpus / f"{split}.{language}" for language in corpus.split("-")[-2:])
        return source.resolve(), target.resolve()
    return corpora.get(corpus).files(split)


def outcome(run: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if "dev_bleu" in line]
    training = yaml.safe_load((run / "recipe.yaml").read_text())["training"]
    return {
        "peak": training["peak"],
        "precision": training["precision"],
        "updates": validations[-1]["step"],
        "dev_loss": round(min(line["dev_loss"] for line in validations), 4),
        "dev_bleu_greedy": round(max(line["dev_bleu"] for line in validations), 2),
        "dev_bleu": round(json.loads((run / "test" / "scores.json").read_text())["bleu"], 2),
    }


if __name__ == "__main__":
    main()
