"""Updates of a translator on request, in a process of its own: whichever checkout of qknorm it finds is measured.

Reads a line of JSON (shape, positions, precision), makes the model, and then answers each further line with the seconds
of one update and of one matrix product of the same process. `profile` is answered with where the time goes.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch

from qknorm.data.batches import Batch
from qknorm.models.half import use_half_products
from qknorm.runs.recipe import make_recipe
from qknorm.runs.translator_run import make_model

# Where a checkout has the types of a model's parts.
PARTS: Any = importlib.import_module(
    f"qknorm.runs.{'contents' if find_spec('qknorm.runs.contents') else 'translator_run'}"
)
LENGTH = 28  # pieces of a sentence, as in talks
UPDATES, PRODUCTS = 4, 8  # of a turn
# Names of torch's profiler, by what they are to a reader; the first that fits counts.
KINDS = {
    "matrix products": ("mm", "matmul", "linear"),
    "attention": ("attention",),
    "query-key normalisation": ("lp_normalize", "Lp"),
    "dropout": ("dropout", "Dropout"),
    "loss": ("cross_entropy", "CrossEntropy"),
    "layer norm": ("layer_norm",),
    "optimiser": ("adam", "Adam", "clip", "norm"),
    "copies and conversions": ("copy", "contiguous", "_to_copy"),
}


class Learner:
    def __init__(self, dim: int, feed_forward: int, layers: list[int], pieces: int, positions: int, half: bool) -> None:
        torch.manual_seed(0)
        shape = {
            "dim": dim, "feed_forward": feed_forward, "encoder_layers": layers[0], "decoder_layers": layers[1],
            "heads": dim // 64, "dropout": 0.2, "embedding_dropout": 0.2, "attention_dropout": 0.1, "relu_dropout": 0.1,
        }  # fmt: skip
        recipe = make_recipe({"data": {"source": "drawn", "target": "drawn"}, "model": shape}, (), "benchmark")
        direction = PARTS.DirectionParts(source="en", target="gl", target_pieces=list(range(pieces)))
        parts = PARTS.ModelParts(scale_init=12.0, vocabulary="", corpus="", directions=[direction])
        self.model = make_model(recipe, parts, pieces).train()
        if half:
            use_half_products(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        rows = positions // LENGTH
        draw = random.Random(0)
        sentences = [
            [[draw.randrange(5, pieces) for _ in range(draw.randint(LENGTH - 5, LENGTH - 1))] for _ in range(rows)]
            for _ in range(16)
        ]
        self.batches = [Batch.of(sentences[first], sentences[first + 1]) for first in range(0, 16, 2)]
        inside = sum(p.numel() for name, p in self.model.named_parameters() if p.dim() == 2 and "coder." in name)
        self.operations = 6 * rows * LENGTH * (inside + pieces * dim)
        self.a, self.b = torch.randn(1024, 512), torch.randn(512, 512)

    def update(self, number: int) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self.model(self.batches[number % len(self.batches)]))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def turn(self) -> dict[str, float]:
        updates = [_timed(lambda number=number: self.update(number)) for number in range(UPDATES)]  # type: ignore[misc]
        products = [_timed(lambda: self.a @ self.b) for _ in range(PRODUCTS)]
        peak = 2 * self.a.numel() * self.b.shape[1] / min(products)
        return {"seconds": median(updates), "share": self.operations / median(updates) / peak}

    def profile(self) -> dict[str, float]:
        """Shares of the time of an update, by kind."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for number in range(UPDATES):
                self.update(number)
        shares: dict[str, float] = dict.fromkeys([*KINDS, "everything else"], 0.0)
        for event in profiler.key_averages():
            kind = next((kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), None)
            shares[kind or "everything else"] += event.self_cpu_time_total
        total = sum(shares.values())
        return {kind: share / total for kind, share in shares.items()}


def _memory() -> Any:
    try:
        return importlib.import_module("qknorm.memory")
    except ImportError:  # a checkout from before it moved
        return importlib.import_module("qknorm.native.memory")


def _timed(do: Callable[[], Any]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    _memory().keep_freed_memory()  # as the command does
    learner = Learner(**json.loads(sys.stdin.readline()))
    learner.turn()  # gets memory, and compiles kernels
    for line in sys.stdin:
        print(json.dumps(learner.profile() if line.strip() == "profile" else learner.turn()), flush=True)


if __name__ == "__main__":
    main()
