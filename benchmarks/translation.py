"""The speed of the translator in training and decoding, as ratios to other translators of the same size.

    python -m benchmarks.translation [--only training|decoding|growth ...] [--rounds N] [--reference FOLDER] [--out FOLDER]

All translators have d=256, d_ff=1024, 4+4 layers, 4 heads, and a vocabulary of about 8,000; all run in this process on
the same threads and take turns, so that a noisy machine slows all alike. A ratio is the median over the rounds.

Training. Sentences are drawn with the lengths of English–Vietnamese talks; all systems get the same ones, and each makes
its batches of at most 2,048 positions its own way. One turn is a few updates with forward, backward, clipping and Adam.
The unit is target pieces per second, padding not counted. All dropouts are 0.3, word dropout 0.1, label smoothing 0.1.
- ours: the Trainer's own update, with QKNorm and with plain scaled dot products.
- reference: its Controller's own update. The same architecture as ours with QKNorm.
- Hugging Face: MarianMTModel. The norm stands after each sublayer, there is no FixNorm, no language vector, and every
  piece has a logit, where ours and the reference's are of the target language only. Its batches are cut like the
  reference's. Label smoothing is torch's, which is faster than that of transformers' Trainer.

Decoding. Real sentences with trained models, a beam of 4, batches of 64 sentences of like length. A turn is one batch.
- reference: carries the weights of our QKNorm model, its table of positions replaced by ours.
- CTranslate2, float32: carries the weights of our plain model. Same exponent of the length penalty, but over the plain
  length instead of (5 + length)/6, and another rule for stopping: a finished hypothesis leaves the beam. So it may find
  another translation than ours; greedy search shows that the models are the same.
- Hugging Face cannot carry our weights. Both sides are made to say exactly as many pieces, from the same sources.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import DEFAULT_OUT, finish, machine
from benchmarks.translators import Decoder, Learner, Pieces, Sentences, Size
from benchmarks.translators.ours import OurDecoder, OurLearner
from qknorm.data.subwords import SPECIAL_PIECES, EOS, UNK
from qknorm.data.textfiles import read_lines
from qknorm.decoding.translator import Translator

PARTS = ("training", "decoding", "forced", "growth")
SIZE = Size()
VOCABULARY = 8000
# Measured on the dev and test sets of IWSLT'15 English–Vietnamese in 8,000 joint pieces: lengths with EOS are
# log-normal, and so is the target's length over the source's; so many of all pieces occur in a target.
SOURCE_MEDIAN, SOURCE_SPREAD = 21.2, 0.61
TARGET_PER_SOURCE, TARGET_SPREAD = 1.06, 0.19
LONGEST = 200
SAID_SHARE = 0.72
SENTENCES_DRAWN = 20_000
UPDATES_PER_TURN = 4
BATCH = 64
FORCED_SOURCE, FORCED_LENGTH = 24, 32
GROWTH_LENGTHS = (64, 128, 256, 512)
GROWTH_BATCH = 8


def drawn_sentences(seed: int = 0) -> Sentences:
    """Pieces at random, in sentences of the lengths of English–Vietnamese talks."""
    rng = np.random.default_rng(seed)
    source = SOURCE_MEDIAN * np.exp(SOURCE_SPREAD * rng.standard_normal(SENTENCES_DRAWN))
    target = source * TARGET_PER_SOURCE * np.exp(TARGET_SPREAD * rng.standard_normal(SENTENCES_DRAWN))
    first = len(SPECIAL_PIECES)
    said = VOCABULARY - round(SAID_SHARE * VOCABULARY)

    def pieces(lengths: np.ndarray[Any, Any], lowest: int) -> list[Pieces]:
        counts = np.clip(np.round(lengths) - 1, 1, LONGEST).astype(int)
        return [rng.integers(lowest, VOCABULARY, count).tolist() for count in counts]

    return Sentences(pieces(source, first), pieces(target, said), VOCABULARY, [UNK, EOS, *range(said, VOCABULARY)])


def in_turns(turns: dict[str, Callable[[], tuple[int, float]]], rounds: int, title: str) -> dict[str, list[float]]:
    """Each round, every system has a turn, which returns an amount and the seconds it took: amounts per second."""
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for number in track(range(rounds), description=title, transient=True):
        names = list(turns)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            amount, seconds = turns[name]()
            rates[name].append(amount / seconds)
    return rates


def learning_turn(learner: Learner) -> Callable[[], tuple[int, float]]:
    learner.update()  # kernels are compiled here

    def turn() -> tuple[int, float]:
        began = time.perf_counter()
        tokens = sum(learner.update() for _ in range(UPDATES_PER_TURN))
        return tokens, time.perf_counter() - began

    return turn


def measure_training(rounds: int, reference: Path | None, console: Console) -> dict[str, Any]:
    sentences = drawn_sentences()
    learners: dict[str, Learner] = {
        "qknorm": OurLearner(sentences, SIZE, "lp"),
        "qknorm, dot products": OurLearner(sentences, SIZE, "dot"),
    }
    if reference is not None:
        from benchmarks.translators.reference import Reference, ReferenceLearner

        learners["reference"] = ReferenceLearner(Reference(reference), sentences, SIZE)
    if "transformers" in available(console):
        from benchmarks.translators.hugging_face import MarianLearner

        learners["Hugging Face"] = MarianLearner(sentences, SIZE)
    turns = {name: learning_turn(learner) for name, learner in learners.items()}
    return {"unit": "target pieces per second", **summary(in_turns(turns, rounds, "training"))}


def summary(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Median rates, and the median over the rounds of every system's rate over that of the others."""
    return {
        "rounds": len(next(iter(rates.values()))),
        "rate": {name: statistics.median(values) for name, values in rates.items()},
        "ratio": {
            name: {
                other: statistics.median(own / theirs for own, theirs in zip(rates[name], rates[other], strict=True))
                for other in rates
                if other != name
            }
            for name in rates
        },
    }


def available(console: Console) -> list[str]:
    """Which of the libraries that are measured against are installed."""
    found = []
    for name in ("transformers", "ctranslate2"):
        try:
            __import__(name)
            found.append(name)
        except ImportError:
            console.print(f"{name} is not installed and is left out; pip install 'qknorm\\[bench]'")
    return found


def measure_decoding(runs: Path, sentences: int, rounds: int, reference: Path | None, console: Console) -> dict[str, Any]:
    trained = {name: Translator.load(runs / name) for name in ("qknorm", "plain")}
    lines = list(read_lines(runs / "qknorm" / "test" / "source.txt"))[:sentences]
    encoded = {name: translator.subwords.encode(lines) for name, translator in trained.items()}
    decoders: dict[str, tuple[str, Decoder]] = {
        "qknorm": ("qknorm", OurDecoder(trained["qknorm"].model, trained["qknorm"].settings)),
        "qknorm, dot products": ("plain", OurDecoder(trained["plain"].model, trained["plain"].settings)),
    }
    if reference is not None:
        from benchmarks.translators.reference import Reference, ReferenceDecoder

        decoders["reference"] = ("qknorm", ReferenceDecoder(Reference(reference), trained["qknorm"].model))
    if "ctranslate2" in available(console):
        from benchmarks.translators.ctranslate import CTranslate2Decoder

        decoders["CTranslate2"] = ("plain", CTranslate2Decoder(trained["plain"].model, trained["plain"].settings))
    order = sorted(range(len(lines)), key=lambda row: len(encoded["qknorm"][row]))
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    found: dict[str, dict[int, Pieces]] = {name: {} for name in decoders}
    rates: dict[str, list[float]] = {name: [] for name in (*decoders, "qknorm, own batches")}
    for decoder_run, decoder in decoders.values():
        decoder.translate([encoded[decoder_run][row] for row in batches[0]])
    for number in range(rounds):
        seconds = dict.fromkeys(decoders, 0.0)
        for batch in track(batches, description=f"decoding {number + 1}/{rounds}", transient=True):
            for name, (run, decoder) in decoders.items():
                sources = [encoded[run][row] for row in batch]
                began = time.perf_counter()
                translations = decoder.translate(sources)
                seconds[name] += time.perf_counter() - began
                found[name].update(zip(batch, translations, strict=True))
        for name in decoders:
            rates[name].append(len(lines) / seconds[name])
        began = time.perf_counter()
        trained["qknorm"].translate(lines)
        rates["qknorm, own batches"].append(len(lines) / (time.perf_counter() - began))
    equal = {
        pair: sum(found[pair[0]][row] == found[pair[1]][row] for row in order) / len(order)
        for pair in (("reference", "qknorm"), ("CTranslate2", "qknorm, dot products"))
        if pair[0] in found
    }
    lengths = {name: sum(len(pieces) + 1 for pieces in of.values()) / len(order) for name, of in found.items()}
    return {
        "unit": "sentences per second",
        "sentences": len(lines),
        **summary(rates),
        "pieces per sentence": lengths,
        "equal translations": {f"{a} = {b}": share for (a, b), share in equal.items()},
    }


def forced_sources(runs: Path, count: int) -> list[Pieces]:
    """Real pieces in sources of one and the same length."""
    translator = Translator.load(runs / "plain")
    lines = list(read_lines(runs / "plain" / "test" / "source.txt"))
    pieces = [piece for source in translator.subwords.encode(lines) for piece in source]
    return [pieces[start * FORCED_SOURCE : (start + 1) * FORCED_SOURCE] for start in range(count)]


def measure_forced(runs: Path, rounds: int, console: Console) -> dict[str, Any]:
    sources = forced_sources(runs, BATCH)
    trained = {name: Translator.load(runs / name) for name in ("qknorm", "plain")}
    decoders: dict[str, Any] = {
        "qknorm": OurDecoder(trained["qknorm"].model, trained["qknorm"].settings),
        "qknorm, dot products": OurDecoder(trained["plain"].model, trained["plain"].settings),
    }
    installed = available(console)
    if "transformers" in installed:
        from benchmarks.translators.hugging_face import MarianDecoder

        penalty = trained["plain"].settings.length_penalty
        decoders["Hugging Face"] = MarianDecoder(len(trained["plain"].subwords), SIZE, penalty)
    if "ctranslate2" in installed:
        from benchmarks.translators.ctranslate import CTranslate2Decoder

        decoders["CTranslate2"] = CTranslate2Decoder(trained["plain"].model, trained["plain"].settings)

    def turn_of(decoder: Any) -> Callable[[], tuple[int, float]]:
        def turn() -> tuple[int, float]:
            began = time.perf_counter()
            decoder.forced(sources, FORCED_LENGTH)
            return len(sources) * FORCED_LENGTH, time.perf_counter() - began

        turn()
        return turn

    turns = {name: turn_of(decoder) for name, decoder in decoders.items()}
    return {"unit": "pieces per second", **summary(in_turns(turns, rounds, "forced lengths"))}


def measure_growth(runs: Path, rounds: int) -> dict[str, Any]:
    """Seconds per piece and sentence at several output lengths."""
    sources = forced_sources(runs, GROWTH_BATCH)
    trained = Translator.load(runs / "qknorm")
    decoder = OurDecoder(trained.model, trained.settings)
    seconds: dict[int, list[float]] = {length: [] for length in GROWTH_LENGTHS}
    for _ in track(range(rounds), description="growth", transient=True):
        for length in GROWTH_LENGTHS:
            began = time.perf_counter()
            decoder.forced(sources, length)
            seconds[length].append(time.perf_counter() - began)
    return {
        "milliseconds per piece": {
            length: 1000 * statistics.median(values) / (length * len(sources)) for length, values in seconds.items()
        }
    }


def print_rates(title: str, result: dict[str, Any], against: Sequence[str], console: Console) -> None:
    peers = [name for name in against if name in result["rate"]]
    table = Table(title=title, title_justify="left")
    for heading in ("", result["unit"], *(f"× {name}" for name in peers)):
        table.add_column(heading, justify="right" if heading else "left")
    for name, rate in result["rate"].items():
        ratios = (f"{result['ratio'][name][peer]:.2f}" if peer != name else "1" for peer in peers)
        table.add_row(name, f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}", *ratios)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="leave the other parts out")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each system")
    parser.add_argument("--sentences", type=int, default=1000, help="how many are decoded")
    parser.add_argument("--reference", type=Path, help="a checkout of the first paper's code")
    parser.add_argument("--runs", type=Path, default=DEFAULT_OUT / "runs", help="trained runs `qknorm` and `plain`")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the JSON and the PNG")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    console = Console()
    if arguments.reference is None:
        console.print("The reference code is left out; give a checkout of it with --reference FOLDER")
    result: dict[str, Any] = {"machine": machine()}
    against = ("reference", "Hugging Face", "CTranslate2")
    if "training" in arguments.only:
        result["training"] = measure_training(arguments.rounds, arguments.reference, console)
        print_rates("Training", result["training"], against, console)
    if "decoding" in arguments.only:
        result["decoding"] = measure_decoding(
            arguments.runs, arguments.sentences, max(1, arguments.rounds // 3), arguments.reference, console
        )
        print_rates("Decoding, beam 4", result["decoding"], against, console)
        console.print(result["decoding"]["equal translations"], result["decoding"]["pieces per sentence"])
    if "forced" in arguments.only:
        result["forced"] = measure_forced(arguments.runs, arguments.rounds, console)
        print_rates("Decoding, forced lengths", result["forced"], against, console)
    if "growth" in arguments.only:
        result["growth"] = measure_growth(arguments.runs, max(1, arguments.rounds // 3))
        console.print(result["growth"])
    sys.exit(finish("translation", result, [], arguments.out, console))


if __name__ == "__main__":
    main()
