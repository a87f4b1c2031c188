"""What a language model costs: training steps, generation and sweeps, as ratios from interleaved runs.

    python -m benchmarks.language [--quick] [--nanogpt FOLDER] [--out FOLDER]

Steps: forward, backward, clipping and optimiser on the same batch, candidates taking turns; nanoGPT with its own model
and optimiser where a checkout is given. Generation: 256 characters with the cache and by reading the window anew for
each. Sweep: runs per hour in parallel, and one after the other with all threads. Writes language.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from benchmarks.common import DEFAULT_OUT, finish, machine
from qknorm import LanguageModel, parameter_groups
from qknorm.attention.norms import LpKind
from qknorm.data.characters import Characters
from qknorm.experiments.machines import Machines
from qknorm.experiments.spanned import plan_sweep
from qknorm.models.gpt import GPT, GPTConfig
from qknorm.screen import Screen

P_VALUES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
# layers, heads, dim, context, batch: nanoGPT's CPU preset, and the small sweep
SIZES = {"preset": (4, 4, 128, 64, 12), "small": (6, 6, 96, 64, 12)}
VOCABULARY = 65
NANOGPT_TARGET, NORM_TARGET, CACHE_TARGET = 1.0, 1.10, 3.0

Step = Callable[[Tensor, Tensor], None]


def our_step(size: tuple[int, ...], **choices: Any) -> Step:
    layers, heads, dim, context, _ = size
    model = GPT(GPTConfig(VOCABULARY, context, layers, heads, dim, dropout=0.0, **choices))
    groups = parameter_groups(model, 0.1)
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)

    def step(characters: Tensor, targets: Tensor) -> None:
        optimizer.zero_grad()
        model(characters, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def nanogpt_step(folder: Path, size: tuple[int, ...]) -> Step:
    """nanoGPT's own model, optimiser and order of things."""
    layers, heads, dim, context, _ = size
    specification = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    if specification is None or specification.loader is None or not (folder / "model.py").is_file():
        sys.exit(f"{folder} is no checkout of nanoGPT: there is no model.py in it")
    module = importlib.util.module_from_spec(specification)
    sys.modules["nanogpt_model"] = module
    specification.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):
        model = module.GPT(module.GPTConfig(context, VOCABULARY, layers, heads, dim, 0.0, False))
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")

    def step(characters: Tensor, targets: Tensor) -> None:
        _, loss = model(characters, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def steps(size: tuple[int, ...], nanogpt: Path | None, seconds: float) -> dict[str, Any]:
    """Each candidate's median ratio to the turns of `none` before and after its own."""
    _, _, _, context, batch = size
    candidates = {f"p={p:g}": our_step(size, qk_norm=LpKind(p=p)) for p in P_VALUES}
    if nanogpt is not None:
        candidates["nanoGPT"] = nanogpt_step(nanogpt, size)
    plain = our_step(size, qk_norm="none")
    characters = torch.randint(VOCABULARY, (batch, context))
    targets = torch.randint(VOCABULARY, (batch, context))

    def turn(step: Step) -> float:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            step(characters, targets)
            times.append(time.perf_counter() - start)
        return min(times[1:])

    for step in (plain, *candidates.values()):
        turn(step)
    ratios: dict[str, list[float]] = {name: [] for name in candidates}
    plain_times = [turn(plain)]
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for name, step in candidates.items():
            spent = turn(step)
            plain_times.append(turn(plain))
            ratios[name].append(spent / ((plain_times[-2] + plain_times[-1]) / 2))
    return {
        "none milliseconds": 1000 * statistics.median(plain_times),
        "ratio": {name: statistics.median(values) for name, values in ratios.items()},
        "rounds": len(next(iter(ratios.values()))),
    }


def generation(rounds: int) -> dict[str, float]:
    """Seconds for 256 characters with the paper's model, and how much longer it takes without the cache."""
    model = GPT(GPTConfig(VOCABULARY, dropout=0.0))
    characters = Characters([chr(48 + number) for number in range(VOCABULARY)])
    writer = LanguageModel(model, characters)

    def anew() -> None:
        numbers = characters.encode("A")[None]
        with torch.inference_mode():
            for _ in range(256):
                logits = model.step(numbers[:, -256:], model.start())
                numbers = torch.cat([numbers, logits.argmax(-1, keepdim=True)], 1)

    with_cache, without = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        writer.generate("A", tokens=256, seed=0)
        middle = time.perf_counter()
        anew()
        with_cache.append(middle - start)
        without.append(time.perf_counter() - middle)
    return {
        "seconds": statistics.median(with_cache),
        "times faster": statistics.median(b / a for a, b in zip(with_cache, without, strict=True)),
    }


def sweep_throughput(console: Screen) -> dict[str, float]:
    """Runs per hour of a few small runs, in parallel and one after the other, each after a warm-up of one update."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "text").write_text("to be, or not to be, that is the question\n" * 2000)
        recipe = folder / "sweep.yaml"
        recipe.write_text(
            f"task: language\ndata: {{file: '{folder / 'text'}'}}\n"
            "model: {layers: 6, heads: 6, dim: 96, context: 64, dropout: 0, p: [1.5, 2, 3, 4]}\n"
            "training: {batch: 12, iterations: 60, validate_every: 60, validation_windows: 8}\n"
        )
        result = {}
        for name, jobs in (("parallel", None), ("one after the other", 1)):
            machines = Machines(jobs=jobs)
            plan_sweep(recipe, None, ["iterations=1"]).run(folder / f"warm {name}", console, machines)
            start = time.perf_counter()
            plan = plan_sweep(recipe)
            failures = plan.run(folder / name, console, machines)
            assert not failures, failures
            result[name] = 3600 * len(plan.cells) / (time.perf_counter() - start)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; noisy")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT; not compared without it")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the JSON")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    console = Screen()
    result: dict[str, Any] = {
        "machine": machine(),
        "command": "make bench-language",
        "steps": {
            name: steps(size, arguments.nanogpt, 15.0 if arguments.quick else 90.0) for name, size in SIZES.items()
        },
        "generation": generation(3 if arguments.quick else 10),
        "sweep, runs per hour": sweep_throughput(Screen(quiet=True)),
    }
    table = Table("step, relative to no normalisation", *SIZES, box=None)
    for name in result["steps"]["preset"]["ratio"]:
        table.add_row(name, *(f"{result['steps'][size]['ratio'][name]:.3f}" for size in SIZES))
    table.add_row("none (ms)", *(f"{result['steps'][size]['none milliseconds']:.1f}" for size in SIZES))
    console.print(table)
    console.print(f"generation: the cache is {result['generation']['times faster']:.1f} × faster")
    console.print({name: round(value) for name, value in result["sweep, runs per hour"].items()})
    sys.exit(finish("language", result, verdict(result), arguments.out, console))


def verdict(result: dict[str, Any]) -> list[str]:
    missed = []
    for size, measured in result["steps"].items():
        for name, ratio in measured["ratio"].items():
            if name == "nanoGPT" and ratio < NANOGPT_TARGET:
                missed.append(f"{size}: without normalisation {1 / ratio:.3f} × nanoGPT, target {NANOGPT_TARGET}")
            elif name != "nanoGPT" and ratio > NORM_TARGET:
                missed.append(f"{size}: {name} {ratio:.3f} × none, target {NORM_TARGET}")
    if result["generation"]["times faster"] < CACHE_TARGET:
        missed.append(f"the cache is {result['generation']['times faster']:.1f} × faster, target {CACHE_TARGET}")
    return missed


if __name__ == "__main__":
    main()
