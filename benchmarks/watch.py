"""What `qknorm.watch` costs: a training step that is looked at, in turns with one that is not, the least of many each.

python -m benchmarks.watch [--rounds 10]
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from rich.console import Console

import qknorm
from benchmarks.common import DEFAULT_OUT, finish, machine
from qknorm.models.gpt import GPT, GPTConfig

_EVERY = 100
_TARGET = 0.05
_SHAPES = {"6 layers, d = 384, length 256": (6, 6, 384, 256, 4), "2 layers, d = 128, length 1024": (2, 4, 128, 1024, 4)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="training steps of each kind")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    chosen = parser.parse_args()
    console, shares = Console(), {}
    for name, shape in _SHAPES.items():
        plain, watched = measure(*shape, rounds=chosen.rounds)
        shares[name] = (watched - plain) / plain / _EVERY
        console.print(
            f"{name}: {plain:.3f} s a step, {watched:.3f} s with a look; {shares[name]:.2%} at every={_EVERY}"
        )
    missed = [f"{name}: {share:.1%}, not ≤ {_TARGET:.0%}" for name, share in shares.items() if share > _TARGET]
    return finish("watch", {"share of a step": shares, "machine": machine()}, missed, chosen.out, console)


def measure(layers: int, heads: int, dim: int, length: int, batch: int, rounds: int) -> tuple[float, float]:
    """Seconds of a training step without a look and with one."""
    model = GPT(GPTConfig(65, context=length, layers=layers, heads=heads, dim=dim))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    numbers = torch.randint(65, (batch, length))
    least = [float("inf"), float("inf")]
    for turn in range(2 * rounds):
        with qknorm.watch(model) if turn % 2 else nullcontext():
            began = time.perf_counter()
            optimizer.zero_grad()
            model(numbers, numbers).backward()
            optimizer.step()
            least[turn % 2] = min(least[turn % 2], time.perf_counter() - began)
    return least[0], least[1]


if __name__ == "__main__":
    raise SystemExit(main())
