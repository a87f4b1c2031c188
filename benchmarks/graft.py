"""Query-key normalisation for trained models: what they lose at once, and after a twentieth of their training.

    python -m benchmarks.graft [--updates 4000] [--translator RUN]

A language model of characters learns the package's phrasebook, so that nothing has to be fetched. Its loss is in nats
per character of held-out text; of several learning rates each way of going on takes the one that is best on another
part of it. RUN is a translator of plain attention, trained on a corpus that `qknorm data get` knows: BLEU on its test
set before and after, without further training.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import qknorm
from benchmarks.common import DEFAULT_OUT, finish, machine
from qknorm.attention.graft import GraftedNorm
from qknorm.data import corpora
from qknorm.data.batches import Batch
from qknorm.data.phrasebook import pairs
from qknorm.data.textfiles import read_lines
from qknorm.decoding.translator import Translator
from qknorm.metrics.table import METRICS
from qknorm.models.gpt import GPT, GPTConfig
from qknorm.runs.translator_run import TranslatorRun

_SENTENCES = 12_000
_CONTEXT, _BATCH = 64, 16
_PEAK = 2e-3
_ANNEALING_UPDATES = 200
_ANNEALING_PEAKS = (2e-3, 1e-3, 5e-4, 2.5e-4)
_MOVES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
# Nats above the old model, trained as long or not, and the share of its training that may be spent on it.
_TARGET, _SHARE = 0.05, 0.05
_TRANSLATED, _FITTED = 400, 256  # sentences
_Windows = tuple[Tensor, Tensor]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=4000, help="updates of the model that has no normalisation")
    parser.add_argument("--translator", type=Path, help="run folder of a translator of plain attention")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    chosen = parser.parse_args()
    console = Console()
    result = measure(chosen.updates)
    if chosen.translator is not None:
        result["translator"] = measure_translator(chosen.translator)
    for name, loss in result["losses"].items():
        console.print(f"{name:40} {loss:.4f}")
    for outcome in [*result["moves"], *result.get("translator", {}).get("moves", [])]:
        console.print(outcome)
    return finish("graft", result, _missed(result["losses"], chosen.updates), chosen.out, console)


def _missed(losses: dict[str, float], updates: int) -> list[str]:
    missed = []
    for name in ("plain", "plain, trained as long", "plain, as long from the start"):
        if (worse := losses["grafted, trained as long"] - losses[name]) > _TARGET:
            missed.append(f"grafted: {worse:.3f} nats above {name}, not ≤ {_TARGET}")
    if (share := _ANNEALING_UPDATES / updates) > _SHARE:
        missed.append(f"{share:.0%} of the training are spent on it, not ≤ {_SHARE:.0%}")
    return missed


def measure(updates: int) -> dict[str, Any]:
    train, dev, held_out = _texts()
    config = GPTConfig(int(train.max()) + 1, context=_CONTEXT, layers=2, heads=4, dim=128, dropout=0.0, qk_norm="none")
    plain = _trained_from_the_start(config, train, updates)
    batches = [_windows(train) for _ in range(4)]
    models = {move: copy.deepcopy(plain) for move in _MOVES}
    gs = {move: qknorm.graft(model, batches, move=move) for move, model in models.items()}
    moves = [{"move": move, "loss": _loss(model, held_out), **_range(gs[move])} for move, model in models.items()]
    grafted, unmoved, naive = models[2.0], models[0.0], copy.deepcopy(models[0.0])
    _start_naively(naive)
    starts = {"plain": plain, "naive g = √head_dim": naive, "grafted, not moved": unmoved, "grafted": grafted}
    losses = {name: _loss(model, held_out) for name, model in starts.items()}

    peaks = {}
    for name, model, anneals in (
        ("plain, trained as long", plain, False),
        ("naive, trained as long", naive, False),
        ("grafted, not moved, trained as long", unmoved, False),
        ("grafted, not moved, then annealed", unmoved, True),
        ("grafted, trained as long", grafted, False),
    ):
        trained = {peak: _trained_on(model, train, peak, anneals) for peak in _ANNEALING_PEAKS}
        peaks[name] = min(trained, key=lambda peak: _loss(trained[peak], dev))
        losses[name] = _loss(trained[peaks[name]], held_out)
    longer = _trained_from_the_start(config, train, updates + _ANNEALING_UPDATES)
    losses["plain, as long from the start"] = _loss(longer, held_out)
    return {"updates": updates, "losses": losses, "learning_rates": peaks, "moves": moves, "machine": machine()}


def measure_translator(folder: Path) -> dict[str, Any]:
    """BLEU of the first sentences of the test set, greedy: of the old model, and of it with each graft."""
    run = TranslatorRun.open(folder)
    recipe, test = run.recipe, run.tests()[0]
    sources, references = (_first_lines(file, _TRANSLATED) for file in (test.source, test.references))
    fitted = [_first_lines(path, _FITTED) for path in corpora.get(str(recipe.data.corpus)).files("train")]

    def bleu(translator: Translator) -> float:
        translations = translator.translate(sources)
        return METRICS["bleu"].score(translations, references, recipe.data.scheme == "words")

    old, outcomes = Translator.load(folder), []
    for move in _MOVES:
        translator = Translator.load(folder)
        g = qknorm.graft(translator.model, [_batch(translator, fitted)], move=move)
        outcomes.append({"move": move, "bleu": bleu(translator), **_range(g)})
    return {"corpus": recipe.data.corpus, "lines": len(sources), "bleu": bleu(old), "moves": outcomes}


def _batch(translator: Translator, sides: Sequence[list[str]]) -> Batch:
    """Pairs of sentences, those that have a piece outside of the target vocabulary left out."""
    sources, targets = (translator.subwords.encode(side) for side in sides)
    known = set(translator.model.target_vocabulary(translator.direction).tolist())
    pairs = [pair for pair in zip(sources, targets, strict=True) if known.issuperset(pair[1])]
    return Batch.of([source for source, _ in pairs], [target for _, target in pairs], 0)


def _first_lines(path: Path, number: int) -> list[str]:
    return [*islice(read_lines(path), number)]


def _range(g: dict[str, Tensor]) -> dict[str, float]:
    every = torch.cat(list(g.values()))
    return {"smallest_g": every.min().item(), "largest_g": every.max().item()}


def _trained_from_the_start(config: GPTConfig, text: Tensor, updates: int) -> GPT:
    torch.manual_seed(0)
    model = GPT(config)
    _train(model, text, updates, _PEAK)
    return model


def _trained_on(model: GPT, text: Tensor, peak: float, anneals: bool) -> GPT:
    torch.manual_seed(1)
    model = copy.deepcopy(model)
    _train(model, text, _ANNEALING_UPDATES, peak, anneals)
    return model


def _texts() -> tuple[Tensor, ...]:
    """The English side of the phrasebook as numbers of characters: what is learned from, and two parts held out."""
    text = "\n".join(pair[0] for pair in pairs(_SENTENCES))
    number = {character: place for place, character in enumerate(sorted(set(text)))}
    numbers = torch.tensor([number[character] for character in text])
    held_out = len(numbers) // 10
    return tuple(numbers.split([len(numbers) - 2 * held_out, held_out, held_out]))


def _windows(text: Tensor, batch: int = _BATCH) -> _Windows:
    starts = torch.randint(len(text) - _CONTEXT - 1, (batch, 1))
    positions = starts + torch.arange(_CONTEXT)
    return text[positions], text[positions + 1]


def _train(model: GPT, text: Tensor, updates: int, peak: float, anneals: bool = False) -> None:
    """AdamW with a short warmup and a linear decay; the strength grows during the first half if it is to."""
    model.train()
    optimizer = torch.optim.AdamW(qknorm.parameter_groups(model, weight_decay=0.1), lr=peak, betas=(0.9, 0.99))
    warmup = max(1, updates // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / warmup, 1 - step / updates))
    for step in range(updates):
        if anneals:
            qknorm.strength_(model, min(1.0, 2 * (step + 1) / updates))
        optimizer.zero_grad()
        model(*_windows(text)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def _loss(model: GPT, held_out: Tensor) -> float:
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(2)
    model.eval()
    losses = [float(model(*_windows(held_out, 64))) for _ in range(4)]
    torch.random.set_rng_state(generator_state)
    return sum(losses) / len(losses)


@torch.no_grad()
def _start_naively(model: GPT) -> None:
    """g where a new layer would start: as sharp as plain attention over vectors of unit variance."""
    for norm in model.modules():
        if isinstance(norm, GraftedNorm) and norm.log_scale is not None:
            norm.log_scale.fill_(math.log(norm.dim) / 2)


if __name__ == "__main__":
    raise SystemExit(main())
