"""The speed of the translator in training and decoding, as ratios to other translators of the same size.

    python -m benchmarks.translation [--only training decoding forced growth] [--rounds N] [--reference FOLDER]

All have d=256, d_ff=1024, 4+4 layers, 4 heads and about 8,000 pieces, run on equally many threads (decoders each in a
process of its own), and take turns, so that a noisy machine slows all alike. A ratio is the median over the rounds.
What is the same and what is not:

Training. Sentences are drawn with the lengths of English–Vietnamese talks; all learn from the same ones, and each makes
batches of at most 2,048 positions its own way. A turn is four updates: forward, backward, clipping, Adam. The unit is
target pieces per second, padding not counted. All dropouts are 0.3, word dropout 0.1, label smoothing 0.1.
- qknorm: the update of its Trainer, with QKNorm and with scaled dot products.
- reference: the update of its Controller. The same architecture as ours with QKNorm.
- Hugging Face: MarianMTModel, batches like the reference's. Its norms stand after each sublayer, it has no FixNorm and
  no language vectors, and every piece has a logit, where ours and the reference's loss is over the pieces of the target
  language. Label smoothing is done by torch, which is faster than what transformers' Trainer does.

Decoding. Real sentences, trained models, a beam of 4, batches of 64 sentences of like length. A turn is one batch.
- reference: carries the weights of our QKNorm model, its table of positions replaced by ours.
- Hugging Face: `generate` of Pegasus, a standard transformer, with the weights of our model with scaled dot products.
  Its search differs as CTranslate2's does, and its rules for ending are looser.
- CTranslate2 in float32: carries the weights of our model with scaled dot products; its target vocabulary holds only
  the pieces that may be said. Its search differs: the length penalty has the same exponent but is over the length, not
  over (5 + length)/6, a finished hypothesis leaves the beam, and a batch has the limit of its longest sentence. That
  the models are the same shows in greedy search, where only the last of these differences is left.
- qknorm, own batches: what a user gets from `Translator.translate`, tokenisation and detokenisation included.

Forced lengths. The same work for all, whatever their rules for ending: the same batches, each translated into exactly
as many pieces as its longest source has.

Growth. Our cost per piece in outputs of up to 512 pieces, forced likewise.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from rich.table import Table

from benchmarks.common import DEFAULT_OUT, agg_pyplot, finish, machine
from benchmarks.translators import Decoder, Learner, Pieces, Sentences, Size
from benchmarks.translators.ours import OurDecoder, OurLearner
from benchmarks.translators.worker import Worker
from qknorm.attention.norms import PlainKind, kind_of
from qknorm.data.subwords import EOS, SPECIAL_PIECES, UNK
from qknorm.data.textfiles import read_lines
from qknorm.decoding.translator import Translator
from qknorm.errors import InputError
from qknorm.memory import keep_freed_memory
from qknorm.runs.recipe import make_recipe
from qknorm.screen import Screen
from qknorm.training.translation import train

PARTS = ("training", "decoding", "forced", "growth")
OURS, OURS_DOT, OWN_BATCHES = "qknorm", "qknorm, dot products", "qknorm, own batches"
REFERENCE, HUGGING_FACE, CTRANSLATE2 = "reference", "Hugging Face", "CTranslate2"
# Part, who, how many times as fast as whom.
TARGETS = (
    ("training", OURS, 2.0, REFERENCE),
    ("training", OURS, 1.3, HUGGING_FACE),
    ("decoding, QKNorm", OURS, 2.5, REFERENCE),
    ("decoding, dot products", OURS_DOT, 1.0, CTRANSLATE2),
    ("decoding, dot products", OURS_DOT, 3.0, HUGGING_FACE),
)
GROWTH_TARGET = 1.5  # the cost of a piece in the longest output, relative to one in the shortest
EQUAL_TARGET = 0.98  # share of sentences for which a system with our weights finds our translation

SIZE = Size(dim=256, feed_forward=1024, encoder_layers=4, decoder_layers=4, heads=4)
VOCABULARY = 8000
# Measured on the dev and test sets of IWSLT'15 English–Vietnamese in 8,000 joint pieces: lengths with EOS are
# log-normal, and so is the target's length over the source's; so large a share of the pieces occurs in a target.
SOURCE_MEDIAN, SOURCE_SPREAD = 21.2, 0.61
TARGET_PER_SOURCE, TARGET_SPREAD = 1.06, 0.19
TARGET_SHARE = 0.72
LONGEST = 200
SENTENCES_DRAWN = 20_000
UPDATES_PER_TURN = 4
BATCH = 64
ROUNDS_OF_DECODING = 3
GROWTH_LENGTHS = (64, 128, 256, 512)
GROWTH_BATCH = 8

Turn = Callable[[], tuple[int, float]]
"""Do something; how much it was, and the seconds it took."""


class Peers:
    """Which of the systems to compare with are there; says so once for each that is not."""

    def __init__(self, reference: Path | None, console: Screen) -> None:
        self.reference: Any = None
        self.checkout = reference
        if reference is None:
            console.print("The reference code is left out; give a checkout of it with --reference FOLDER.")
        else:
            from benchmarks.translators.reference import Reference

            self.reference = Reference(reference)
        installed = {name: importlib.util.find_spec(name) is not None for name in ("transformers", "ctranslate2")}
        self.hugging_face, self.ctranslate2 = installed.values()
        for name in (name for name, there in installed.items() if not there):
            console.print(f"{name} is left out; install it with: pip install 'qknorm\\[bench]'")


def drawn_sentences(seed: int = 0) -> Sentences:
    """Pieces at random, in sentences of the lengths of English–Vietnamese talks."""
    rng = np.random.default_rng(seed)
    source = SOURCE_MEDIAN * np.exp(SOURCE_SPREAD * rng.standard_normal(SENTENCES_DRAWN))
    target = source * TARGET_PER_SOURCE * np.exp(TARGET_SPREAD * rng.standard_normal(SENTENCES_DRAWN))
    first_target = VOCABULARY - round(TARGET_SHARE * VOCABULARY)

    def pieces(lengths: np.ndarray[Any, Any], lowest: int) -> list[Pieces]:
        counts = np.clip(np.round(lengths) - 1, 1, LONGEST).astype(int)
        return [rng.integers(lowest, VOCABULARY, count).tolist() for count in counts]

    sources, targets = pieces(source, len(SPECIAL_PIECES)), pieces(target, first_target)
    return Sentences(sources, targets, VOCABULARY, [UNK, EOS, *range(first_target, VOCABULARY)])


@dataclass(frozen=True)
class Trained:
    """A trained run and the sentences it is to translate."""

    folder: Path
    translator: Translator
    lines: list[str]

    @classmethod
    def load(cls, folder: Path) -> Trained:
        return cls(folder, Translator.load(folder), list(read_lines(folder / "test" / "source.txt")))

    @property
    def is_plain(self) -> bool:
        return kind_of(self.translator.model.config.qk_norm) == PlainKind()

    def our_decoder(self) -> OurDecoder:
        return OurDecoder(self.translator.model, self.translator.settings)

    def batches(self, most: int) -> list[list[Pieces]]:
        """At most so many sentences, sorted by length, in batches of 64."""
        encoded = sorted(self.translator.subwords.encode(self.lines[:most]), key=len)
        return [encoded[start : start + BATCH] for start in range(0, len(encoded), BATCH)]


def trained_runs(given: Iterable[Path], corpus: str, out: Path, console: Screen) -> tuple[Trained, Trained]:
    """One run with QKNorm and one with dot products: those that are given, else trained here once and kept."""
    result = {run.is_plain: run for run in map(Trained.load, given)}
    for is_plain, name in ((False, "qknorm"), (True, "plain")):
        folder = out / "runs" / name
        if is_plain not in result:
            if not (folder / "test" / "scores.json").exists():
                console.print(f"Training {folder} on {corpus}; give a run of your own with --run FOLDER.")
                train(_recipe(corpus, is_plain), folder, console, resume=(folder / "recipe.yaml").exists())
            result[is_plain] = Trained.load(folder)
    return result[False], result[True]


def _recipe(corpus: str, is_plain: bool) -> Any:
    """A model of our size that translates passably after few minutes."""
    model = {
        "dim": SIZE.dim,
        "feed_forward": SIZE.feed_forward,
        "encoder_layers": SIZE.encoder_layers,
        "decoder_layers": SIZE.decoder_layers,
        "heads": SIZE.heads,
        **dict.fromkeys(("dropout", "embedding_dropout"), 0.1),
        **dict.fromkeys(("attention_dropout", "relu_dropout"), 0.0),
        **({"qk_norm": "none", "fix_norm": False} if is_plain else {}),
    }
    training = {"budget": 2048, "schedule": "cosine", "peak": 1.5e-3, "warmup": 100}
    training |= {"max_updates": 700, "validate_every": 700}
    data = {"corpus": corpus, "merges": 8000}
    content = {"data": data, "model": model, "training": training, "decoding": {"validation_beam_size": 1}}
    return make_recipe(content, (), "the benchmark's recipe")


def measure_training(rounds: int, peers: Peers) -> dict[str, Any]:
    sentences = drawn_sentences()
    learners: dict[str, Learner] = {
        OURS: OurLearner(sentences, SIZE, "lp"),
        OURS_DOT: OurLearner(sentences, SIZE, "dot"),
    }
    if peers.reference is not None:
        from benchmarks.translators.reference import ReferenceLearner

        learners[REFERENCE] = ReferenceLearner(peers.reference, sentences, SIZE)
    if peers.hugging_face:
        from benchmarks.translators.hugging_face import MarianLearner

        learners[HUGGING_FACE] = MarianLearner(sentences, SIZE)

    def turn_of(learner: Learner) -> Turn:
        return timed(lambda: sum(learner.update() for _ in range(UPDATES_PER_TURN)))

    for learner in learners.values():
        learner.update()  # kernels are compiled here
    turns = {name: turn_of(learner) for name, learner in learners.items()}
    return {"unit": "target pieces/s", **summary(in_turns(turns, rounds, "training"))}


# What makes each decoder, in its own process.


def our_decoder(run: Path) -> OurDecoder:
    return Trained.load(run).our_decoder()


def our_translator(run: Path) -> Translator:
    return Trained.load(run).translator


def reference_decoder(run: Path, checkout: Path) -> Decoder:
    from benchmarks.translators.reference import Reference, ReferenceDecoder

    return ReferenceDecoder(Reference(checkout), Trained.load(run).translator.model)


def hugging_face_decoder(run: Path) -> Decoder:
    from benchmarks.translators.hugging_face import PegasusDecoder

    translator = Trained.load(run).translator
    return PegasusDecoder(translator.model, translator.settings)


def ctranslate2_decoder(run: Path) -> Decoder:
    from benchmarks.translators.ctranslate import CTranslate2Decoder

    translator = Trained.load(run).translator
    return CTranslate2Decoder(translator.model, translator.settings)


def standard_transformers(plain: Trained, peers: Peers) -> dict[str, Worker]:
    """Those that carry the weights of our model with scaled dot products."""
    workers = {}
    if peers.hugging_face:
        workers[HUGGING_FACE] = Worker(hugging_face_decoder, plain.folder)
    if peers.ctranslate2:
        workers[CTRANSLATE2] = Worker(ctranslate2_decoder, plain.folder)
    return workers


def measure_decoding(run: Trained, sentences: int, rounds: int, peers: Peers, console: Screen) -> dict[str, Any]:
    """Our search and that of other systems with the same weights, over the same batches."""
    batches, lines = run.batches(sentences), run.lines[:sentences]
    ours = OURS_DOT if run.is_plain else OURS
    workers = {ours: Worker(our_decoder, run.folder)}
    try:
        if run.is_plain:
            workers |= standard_transformers(run, peers)
        elif peers.reference is not None:
            workers[REFERENCE] = Worker(reference_decoder, run.folder, peers.checkout)
    except InputError as error:
        console.print(f"Left out: {error}.")

    works = {name: partial(worker.call, "translate") for name, worker in workers.items()}
    seconds, outputs = over_batches(works, batches, rounds, "decoding")
    for worker in workers.values():
        worker.stop()
    translator = Worker(our_translator, run.folder)
    translator.call("translate", lines)  # not counted
    seconds[OWN_BATCHES] = [translator.call("translate", lines)[0] for _ in range(rounds)]
    translator.stop()
    outcome = {name: [pieces for batch in batches_of for pieces in batch] for name, batches_of in outputs.items()}
    count = sum(map(len, batches))
    result = {
        "unit": "sentences/s",
        "sentences": count,
        **summary({name: [count / spent for spent in values] for name, values in seconds.items()}),
        "pieces per sentence": {
            name: statistics.mean(len(pieces) + 1 for pieces in all_of) for name, all_of in outcome.items()
        },
    }
    result["equal translations"] = {name: share_equal(outcome[ours], outcome[name]) for name in outcome if name != ours}
    if CTRANSLATE2 in outcome:
        result["equal in greedy search"] = equal_in_greedy_search(run, batches)
    return result


def share_equal(some: Sequence[Pieces], others: Sequence[Pieces]) -> float:
    return statistics.mean(ours == theirs for ours, theirs in zip(some, others, strict=True))


def equal_in_greedy_search(run: Trained, batches: Sequence[Sequence[Pieces]]) -> float:
    """The share of sentences of which CTranslate2 and we say the same, up to our limit, without a beam."""
    from benchmarks.translators.ctranslate import CTranslate2Decoder

    model, settings = run.translator.model, replace(run.translator.settings, beam_size=1)
    ours, theirs = OurDecoder(model, settings), CTranslate2Decoder(model, settings)
    by_us, by_them = [], []
    for batch in batches:
        by_us += ours.translate(batch)
        limits = (len(source) + settings.extra_length for source in batch)
        by_them += [pieces[:limit] for pieces, limit in zip(theirs.translate(batch), limits, strict=True)]
    return share_equal(by_us, by_them)


def measure_forced(qknorm: Trained, plain: Trained, sentences: int, rounds: int, peers: Peers) -> dict[str, Any]:
    """All say equally much, whatever their rules for ending."""
    workers = {OURS: Worker(our_decoder, qknorm.folder), OURS_DOT: Worker(our_decoder, plain.folder)}
    workers |= standard_transformers(plain, peers)
    works = {name: forced_to_longest(worker) for name, worker in workers.items()}
    seconds, outputs = over_batches(works, plain.batches(sentences), rounds, "forced lengths")
    for worker in workers.values():
        worker.stop()
    counts = {name: sum(pieces) for name, pieces in outputs.items()}
    if len(set(counts.values())) > 1:
        raise RuntimeError(f"not all said equally much: {counts}")
    rates = {name: [counts[name] / spent for spent in values] for name, values in seconds.items()}
    return {"unit": "pieces/s", **summary(rates)}


def forced_to_longest(worker: Worker) -> Callable[[list[Pieces]], tuple[float, int]]:
    return lambda batch: worker.call("forced", batch, max(map(len, batch)) + 1)


def measure_growth(run: Trained, rounds: int) -> dict[str, Any]:
    """What one piece costs in outputs of several lengths."""
    sources, decoder = run.batches(GROWTH_BATCH)[0], run.our_decoder()

    def turn_of(length: int) -> Turn:
        return timed(lambda: decoder.forced(sources, length))

    turns = {str(length): turn_of(length) for length in GROWTH_LENGTHS}
    rates = in_turns(turns, rounds, "growth")
    return {"milliseconds per piece": {length: 1000 / statistics.median(values) for length, values in rates.items()}}


def timed(work: Callable[[], int]) -> Turn:
    def turn() -> tuple[int, float]:
        began = time.perf_counter()
        amount = work()
        return amount, time.perf_counter() - began

    return turn


def in_turns(turns: dict[str, Turn], rounds: int, title: str) -> dict[str, list[float]]:
    """Amounts per second in each round; the first of one round is the last of the next."""
    rates: dict[str, list[float]] = {name: [] for name in turns}
    names = list(turns)
    for number in track(range(rounds), description=title, transient=True):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            amount, seconds = turns[name]()
            rates[name].append(amount / seconds)
    return rates


def over_batches(
    works: Mapping[str, Callable[[list[Pieces]], tuple[float, Any]]],
    batches: list[list[Pieces]],
    rounds: int,
    title: str,
) -> tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Every system works on a batch before the next one comes: its seconds in each round, its results in the last."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, list[Any]] = {}
    for work in works.values():  # not counted
        work(batches[0])
    for number in range(rounds):
        spent, results = dict.fromkeys(works, 0.0), {name: [] for name in works}
        for batch in track(batches, description=f"{title}, round {number + 1}/{rounds}", transient=True):
            for name, work in works.items():
                took, result = work(batch)
                results[name].append(result)
                spent[name] += took
        for name in works:
            seconds[name].append(spent[name])
    return seconds, results


def summary(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Median rates, and the median over the rounds of each system's rate relative to each other's."""

    def ratio(first: str, second: str) -> float:
        return statistics.median(ours / theirs for ours, theirs in zip(rates[first], rates[second], strict=True))

    return {
        "rounds": len(next(iter(rates.values()))),
        "rate": {name: statistics.median(values) for name, values in rates.items()},
        "ratio": {name: {other: ratio(name, other) for other in rates if other != name} for name in rates},
    }


def print_part(title: str, part: dict[str, Any], console: Screen) -> None:
    table = Table(title=title, title_justify="left")
    peers = [name for name in (REFERENCE, HUGGING_FACE, CTRANSLATE2) if name in part["rate"]]
    for heading in ("", part["unit"], *(f"× {name}" for name in peers)):
        table.add_column(heading, justify="right" if heading else "left")
    for name, rate in part["rate"].items():
        ratios = (f"{part['ratio'][name][peer]:.2f}" if name != peer else "" for peer in peers)
        table.add_row(name, f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}", *ratios)
    console.print(table)
    for name, share in part.get("equal translations", {}).items():
        console.print(f"{name} says what we say in {share:.1%} of {part['sentences']:,} sentences", highlight=False)
    if "equal in greedy search" in part:
        console.print(f"{CTRANSLATE2} does in {part['equal in greedy search']:.1%} without a beam", highlight=False)


def print_growth(growth: dict[str, Any], console: Screen) -> None:
    table = Table(title="Cost of a piece by output length", title_justify="left")
    table.add_column("pieces", justify="right")
    table.add_column("milliseconds per piece", justify="right")
    for length, milliseconds in growth["milliseconds per piece"].items():
        table.add_row(length, f"{milliseconds:.2f}")
    console.print(table)


def verdict(result: dict[str, Any]) -> list[str]:
    """Each target that was missed, as a sentence."""
    missed = []
    for part, name, target, peer in TARGETS:
        ratio = result.get(part, {}).get("ratio", {}).get(name, {}).get(peer)
        if ratio is not None and ratio < target:
            missed.append(f"{part}: {name} is {ratio:.2f} × as fast as {peer}, target {target}")
    equal = {
        REFERENCE: result.get("decoding, QKNorm", {}).get("equal translations", {}).get(REFERENCE, 1.0),
        CTRANSLATE2: result.get("decoding, dot products", {}).get("equal in greedy search", 1.0),
    }
    for peer, share in equal.items():
        if share < EQUAL_TARGET:
            missed.append(
                f"{peer} says what we say in {share:.1%}, expected {EQUAL_TARGET:.0%}: other weights than ours"
            )
    if "growth" in result:
        costs = list(result["growth"]["milliseconds per piece"].values())
        if costs[-1] > GROWTH_TARGET * costs[0]:
            missed.append(f"growth: a piece costs {costs[-1] / costs[0]:.2f} × as much in the longest output")
    return missed


def draw(result: dict[str, Any], path: Path) -> None:
    plt = agg_pyplot()
    parts = [part for part in result if "rate" in result[part]]
    panels = len(parts) + ("growth" in result)
    figure, axes = plt.subplots(1, panels, figsize=(3.4 * panels, 3.8), layout="constrained", squeeze=False)
    for axis, part in zip(axes[0], parts, strict=False):
        rates = result[part]["rate"]
        colours = ["#0072b2" if name.startswith(OURS) else "#bbbbbb" for name in rates]
        bars = axis.bar([name.replace(" ", "\n") for name in rates], rates.values(), color=colours)
        axis.bar_label(bars, [f"{rate:,.0f}" for rate in rates.values()], fontsize=9)
        for of_part, name, target, peer in TARGETS:
            if of_part == part and peer in rates:
                place, style = list(rates).index(name), {"color": "#d55e00", "linestyle": "--", "label": "target"}
                axis.hlines(target * rates[peer], place - 0.5, place + 0.5, **style)
        axis.set_title(part, fontsize=10)
        axis.set_ylabel(result[part]["unit"])
    if "growth" in result:
        axis, costs = axes[0][-1], result["growth"]["milliseconds per piece"]
        axis.plot([int(length) for length in costs], costs.values(), color="#0072b2", marker="o")
        axis.set(title="growth", xlabel="pieces in the output", ylabel="milliseconds per piece", ylim=0)
        axis.title.set_fontsize(10)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="x", labelsize=8)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles[:1], labels[:1], loc="outside lower left", frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def measure(arguments: argparse.Namespace, console: Screen) -> dict[str, Any]:
    result: dict[str, Any] = {"machine": machine(), "command": "make bench"}
    peers = Peers(arguments.reference, console)
    rounds, decoding_rounds = arguments.rounds, min(arguments.rounds, ROUNDS_OF_DECODING)
    if "training" in arguments.only:
        result["training"] = measure_training(rounds, peers)
        print_part("Training", result["training"], console)
    if set(arguments.only) == {"training"}:
        return result
    qknorm, plain = trained_runs(arguments.run, arguments.corpus, arguments.out, console)
    if "decoding" in arguments.only:
        for name, run in (("decoding, QKNorm", qknorm), ("decoding, dot products", plain)):
            result[name] = measure_decoding(run, arguments.sentences, decoding_rounds, peers, console)
            print_part(name[0].upper() + name[1:], result[name], console)
    if "forced" in arguments.only:
        result["forced"] = measure_forced(qknorm, plain, arguments.sentences, decoding_rounds, peers)
        print_part("Decoding, forced lengths", result["forced"], console)
    if "growth" in arguments.only:
        result["growth"] = measure_growth(qknorm, decoding_rounds)
        print_growth(result["growth"], console)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="leave the other parts out")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each system; at most 3 in all but training")
    parser.add_argument("--sentences", type=int, default=1000, help="how many are decoded")
    parser.add_argument("--reference", type=Path, help="a checkout of the first paper's code")
    parser.add_argument("--run", type=Path, action="append", default=[], help="a trained run; else two are trained")
    parser.add_argument("--corpus", default="multi30k-en-de", help="what they are trained on")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the JSON, the PNG and the runs")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    keep_freed_memory()  # as the command does; it serves all systems
    console = Screen()
    try:
        result = measure(arguments, console)
    except InputError as error:
        console.print(f"error: {error}", markup=False)
        sys.exit(2)
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw(result, arguments.out / "translation.png")
    sys.exit(finish("translation", result, verdict(result), arguments.out, console))


if __name__ == "__main__":
    main()
