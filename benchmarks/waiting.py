"""How fast translations come where people wait: sentences a second, beside CTranslate2 with the same weights.

    python -m benchmarks.waiting --run PLAIN --run QKNORM [--sentences N] [--rounds N] [--text FILE --references FILE]

PLAIN is a run that CTranslate2 can carry (qk_norm=none norm=layer placement=pre), QKNORM any other of the same size and
languages; without either, both are trained as `benchmarks.translation` does. Real sentences, a beam of 4, products of
float32 and of int8:
- one at a time: one thread, each sentence by itself, and the process is running;
- all: all sentences by all cores, each with batches of its own (CTranslate2: for each core a worker of one thread, its
  batches of 64 sentences of like length).

Each system has a process of its own and they take turns, sentence by sentence or all sentences; a figure is the median
over the rounds. Their searches differ as `benchmarks.translation` says, so BLEU is given with each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from rich.table import Table

from benchmarks.common import DEFAULT_OUT, finish, machine
from benchmarks.translation import Trained, trained_runs
from benchmarks.translators import Pieces
from benchmarks.translators.ours import OurDecoder
from benchmarks.translators.worker import Worker
from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError
from qknorm.screen import Screen

PRECISIONS = ("float32", "int8")
ONE, ALL = "one at a time", "all"
# Sentences a second relative to CTranslate2's in the same precision.
TARGETS = {(ONE, "float32"): 1.2, (ONE, "int8"): 1.2, (ALL, "float32"): 1.5, (ALL, "int8"): 1.2}


def our_decoder(run: Path, precision: Any, threads: int) -> OurDecoder:
    torch.set_num_threads(threads)
    decoder = Trained.load(run).our_decoder()
    return OurDecoder(decoder.model, replace(decoder.settings, precision=precision))


def ctranslate2_decoder(run: Path, precision: str, threads: int) -> Any:
    from benchmarks.translators.ctranslate import CTranslate2Decoder

    translator = Trained.load(run).translator
    return CTranslate2Decoder(translator.model, translator.settings, precision, threads)


@dataclass(frozen=True)
class System:
    """One that translates, in a process of its own, what it has to translate, and how it went."""

    run: Trained
    worker: Worker
    works: list[list[int]]
    """Lines of the text, by their numbers, that it gets at a time."""
    sources: list[Pieces]
    rates: list[float] = field(default_factory=list)
    said: dict[int, Pieces] = field(default_factory=dict)

    def translate(self, work: Sequence[int]) -> float:
        """The seconds that it takes."""
        seconds, pieces = self.worker.call("translate", [self.sources[line] for line in work])
        self.said.update(zip(work, pieces, strict=True))
        return float(seconds)

    def bleu(self, references: Sequence[str]) -> float:
        texts = [self.run.translator.subwords.decode(self.said[line]) for line in range(len(self.sources))]
        return float(sacrebleu.corpus_bleu(texts, [list(references)]).score)


def systems(runs: Sequence[Trained], lines: Sequence[str], how: str) -> dict[str, System]:
    threads = 1 if how == ONE else os.cpu_count() or 1
    made = {}
    for precision, run in product(PRECISIONS, runs):
        sources = run.translator.subwords.encode(list(lines))
        by_length = sorted(range(len(sources)), key=lambda line: len(sources[line]))
        works = [[line] for line in by_length] if how == ONE else [by_length]
        decoders = {f"qknorm{', dot products' * run.is_plain}": our_decoder}
        decoders |= {"CTranslate2": ctranslate2_decoder} if run.is_plain else {}
        for name, decoder in decoders.items():
            worker = Worker(decoder, run.folder, precision, threads)
            made[f"{name}, {precision}"] = System(run, worker, works, sources)
    return made


def measure(runs: Sequence[Trained], lines: Sequence[str], references: Sequence[str], how: str, rounds: int) -> Any:
    """A row for each system: its rate, relative to CTranslate2's in the same precision, and its BLEU."""
    measured = systems(runs, lines, how)
    for system in measured.values():  # not counted: kernels are compiled, weights are packed
        system.translate(system.works[0])
    for _ in range(rounds):
        seconds = dict.fromkeys(measured, 0.0)
        for turn in range(1 if how == ALL else len(lines)):
            for name, system in measured.items():
                seconds[name] += system.translate(system.works[turn])
        for name, system in measured.items():
            system.rates.append(len(lines) / seconds[name])
    rows = []
    for name, system in measured.items():
        system.worker.stop()
        theirs = measured[f"CTranslate2, {name.rpartition(', ')[2]}"].rates
        ratio = statistics.median(ours / other for ours, other in zip(system.rates, theirs, strict=True))
        rate, bleu = statistics.median(system.rates), system.bleu(references)
        rows.append({"system": name, "sentences/s": rate, "ratio": ratio, "bleu": bleu})
    return rows


def missed(result: dict[str, Any]) -> list[str]:
    """Each target that was missed, as a sentence."""
    return [
        f"{how}: {row['system']} is {row['ratio']:.2f} × as fast as CTranslate2, target {target}"
        for (how, precision), target in TARGETS.items()
        for row in result[how]
        if row["system"].startswith("qknorm") and row["system"].endswith(precision) and row["ratio"] < target
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, action="append", default=[], help="a trained run; else two are trained")
    parser.add_argument("--corpus", default="multi30k-en-de", help="what they are trained on")
    parser.add_argument("--text", type=Path, help="sentences to translate; else the test set of the plain run")
    parser.add_argument("--references", type=Path, help="their translations")
    parser.add_argument("--sentences", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    arguments = parser.parse_args()
    console = Screen()
    try:
        given = [Trained.load(run) for run in arguments.run]
        runs = given or list(trained_runs([], arguments.corpus, arguments.out, console))
        (plain,) = (run for run in runs if run.is_plain)
    except (InputError, ValueError) as error:
        console.print(f"error: one run must have dot products: {error}", markup=False)
        sys.exit(2)
    lines = list(read_lines(arguments.text)) if arguments.text else plain.lines
    references = list(read_lines(arguments.references or plain.folder / "test" / "references.txt"))
    lines, references = lines[: arguments.sentences], references[: arguments.sentences]
    result: dict[str, Any] = {"machine": machine(), "command": "python -m benchmarks.waiting", "sentences": len(lines)}
    for how in (ONE, ALL):
        result[how] = measure(runs, lines, references, how, arguments.rounds)
        table = Table("system", "sentences/s", "× CTranslate2", "BLEU", title=how)
        for row in result[how]:
            table.add_row(row["system"], f"{row['sentences/s']:.1f}", f"{row['ratio']:.2f}", f"{row['bleu']:.1f}")
        console.print(table)
    arguments.out.mkdir(parents=True, exist_ok=True)
    sys.exit(finish("waiting", result, missed(result), arguments.out, console))


if __name__ == "__main__":
    main()
