"""qknorm as a user has it: `qknorm train --src … --tgt … --minutes N`, nothing else chosen."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.quality_systems import Contest, Outcome, Validation, run_logged
from benchmarks.translators import Size
from qknorm.cache import cache_folder
from qknorm.data.textfiles import read_lines
from qknorm.evaluation.scores import scores
from qknorm.ops import load_kernels
from qknorm.runs.translator_run import TranslatorRun

_NAME = "run"
_KERNELS = "kernels"  # in the cache


def run(contest: Contest, minutes: float, folder: Path) -> Outcome:
    """A run of its own for these minutes: its schedule ends with them, so that half of a longer run says little."""
    held_out = {
        split: json.dumps([str(contest.file(split, language)) for language in (contest.source, contest.target)])
        for split in ("dev", "test")
    }
    train = [contest.file("train", language) for language in (contest.source, contest.target)]
    command: list[str | Path] = [sys.executable, "-m", "qknorm", "train", "--src", train[0], "--tgt", train[1]]
    command += ["--minutes", f"{minutes:g}", "--runs", folder, f"name={_NAME}"]
    command += [f"{split}={files}" for split, files in held_out.items()]
    # A cache of its own: no run finds the text prepared by an earlier one, but kernels are compiled once for a machine.
    load_kernels()
    cache = folder / "cache"
    cache.mkdir()
    (cache / _KERNELS).symlink_to(cache_folder() / _KERNELS)
    began = time.time()
    run_logged(command, folder / "log.txt", contest.threads, {"QKNORM_CACHE": str(cache)})
    took = time.time() - began

    result = TranslatorRun(run_folder(folder))
    lines = result.metrics()
    # Its own seconds begin with the first update; the file was written last at the last validation.
    preparing = result.metrics_file.stat().st_mtime - began - lines[-1].seconds
    curve = [Validation((preparing + line.seconds) / 60, line.step, line.measures["dev_bleu"]) for line in lines]
    hypotheses = list(read_lines(result.test_set().hypotheses))
    test = scores(hypotheses, contest.references, contest.tokenized, contest.target)
    facts = {
        "updates": lines[-1].step,
        "target pieces/s": lines[-1].tokens_per_second,
        "parameters": sum(weights.numel() for weights in result.make_model().parameters()),
        "pieces": len(result.vocabulary_of(result.parts)),
        "recipe": result.recipe.model_dump(mode="json", exclude={"data": {"source", "target", "dev", "test"}}),
    }
    return Outcome(minutes, curve, {f"{minutes:g}": test.content() | {"updates": lines[-1].step}}, facts, took / 60)


def run_folder(folder: Path) -> Path:
    return folder / _NAME


def size_of_run(folder: Path) -> tuple[Size, int]:
    """The size that the planner chose, and the merges."""
    recipe = TranslatorRun.open(run_folder(folder)).recipe
    return Size.of(recipe.model), recipe.data.merges
