"""The first paper's own code, from a checkout of it, with its published settings at our size and with our pieces.

Its schedule warms up over 8,000 updates of 4,096 positions, far more than fit into an hour on a CPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from benchmarks.quality_systems import Clock, Contest, Outcome, Validation, best_by, run_logged
from benchmarks.quality_systems.ours import run_folder, size_of_run
from benchmarks.translators import Sentences
from benchmarks.translators.reference import Reference, ReferenceLearner
from qknorm.data.subwords import Subwords
from qknorm.evaluation.scores import bleu, scores
from qknorm.runs.translator_run import TranslatorRun

_BUDGET = 4096
_LONGEST = 200
_BATCH = 64


def run(
    contest: Contest,
    minutes: float,
    views: Iterable[float],
    validations: int,
    ours: Path,
    checkout: Path,
    folder: Path,
) -> Outcome:
    """Train in a process of its own, with the pieces and the size of a run of ours."""
    task = {
        "contest": {**asdict(contest), "text": str(contest.text)},
        "minutes": minutes,
        "views": list(views),
        "validations": validations,
        "ours": str(ours),
        "checkout": str(checkout),
    }
    path = folder / "task.json"
    path.write_text(json.dumps(task), encoding="utf-8")
    run_logged([sys.executable, "-m", __name__, path], folder / "log.txt", contest.threads)
    return Outcome.load(folder / "learned.json")


def learn(
    contest: Contest, minutes: float, views: Sequence[float], validations: int, ours: Path, checkout: Path, folder: Path
) -> Outcome:
    clock = Clock(minutes, validations)
    result, (size, _) = TranslatorRun.open(run_folder(ours)), size_of_run(ours)
    subwords = result.vocabulary_of(result.parts)
    encoded = (subwords.encode(contest.lines("train", side)) for side in (contest.source, contest.target))
    pairs = [pair for pair in zip(*encoded, strict=True) if max(map(len, pair)) <= _LONGEST]
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    sentences = Sentences(sources, targets, len(subwords), result.parts.directions[0].target_pieces)
    learner = ReferenceLearner(Reference(checkout), sentences, replace(size, budget=_BUDGET))
    dev, references = contest.lines("dev", contest.source), contest.lines("dev", contest.target)
    curve: list[Validation] = []
    updates, pieces, began = 0, 0, clock.seconds
    while not clock.is_over:
        pieces += learner.update()
        updates += 1
        if clock.is_due:
            with clock.stopped():
                score = bleu(translate(learner, subwords, dev), references, contest.tokenized)
                torch.save(learner.model.state_dict(), folder / f"{updates}.pt")
            curve.append(Validation(clock.seconds / 60, updates, score))
    speed = pieces / (clock.seconds - began)
    tests = {}
    for view in views:
        if chosen := best_by(view, curve):
            learner.model.load_state_dict(torch.load(folder / f"{chosen.updates}.pt", weights_only=True))
            hypotheses = translate(learner, subwords, contest.lines("test", contest.source))
            found_scores = scores(hypotheses, contest.references, contest.tokenized, contest.target)
            tests[f"{view:g}"] = found_scores.content() | {"updates": chosen.updates}
    for checkpoint in folder.glob("*.pt"):
        checkpoint.unlink()
    facts = {
        "updates": updates,
        "target pieces/s": speed,
        "minutes validating": clock.validating / 60,
        "parameters": sum(weights.numel() for weights in learner.model.parameters()),
        "pieces": len(subwords),
    }
    return Outcome(minutes, curve, tests, facts)


def translate(learner: ReferenceLearner, subwords: Subwords, lines: Sequence[str]) -> list[str]:
    """In batches of sentences of like length."""
    encoded = subwords.encode(lines)
    rows = sorted(range(len(lines)), key=lambda row: len(encoded[row]))
    translations = [""] * len(lines)
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        for row, pieces in zip(part, learner.translate([encoded[row] for row in part]), strict=True):
            translations[row] = subwords.decode(pieces)
    return translations


def main() -> None:
    path = Path(sys.argv[1])
    task = json.loads(path.read_text(encoding="utf-8"))
    contest = Contest(**task["contest"] | {"text": Path(task["contest"]["text"])})
    folders = (Path(task["ours"]), Path(task["checkout"]), path.parent)
    outcome = learn(contest, task["minutes"], task["views"], task["validations"], *folders)
    outcome.save(path.with_name("learned.json"))


if __name__ == "__main__":
    main()
