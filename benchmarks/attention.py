"""What query-key normalisation costs: time and memory as ratios to torch's plain attention.

    python -m benchmarks.attention [--quick] [--out FOLDER]

Candidates take turns of a few calls for many rounds, and plain attention has a turn between any two of them: a
candidate's time is divided by that of its two neighbours, so that a noisy machine slows both alike. The first call of
a turn is not counted. Prints tables and writes attention.json and attention.png.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import qknorm
from benchmarks.common import DEFAULT_OUT, agg_pyplot, finish, machine

P_VALUES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, math.inf)
# (batch, heads, length, head_dim), causal, the most that forward + backward may cost relative to plain attention
SHAPES = (
    ((64, 8, 32, 64), False, 1.2),
    ((12, 6, 64, 16), True, 1.35),
    ((16, 6, 256, 64), True, 1.2),
    ((4, 8, 1024, 64), True, 1.2),
)
MEMORY_LENGTHS = (1024, 2048, 4096, 8192)
MEMORY_TARGET = 1.3
# One uncounted call, then as many as fill this time, at least one and at most four.
SECONDS_PER_TURN = 0.05
G = 12.0

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def label(p: float) -> str:
    return "p=∞" if math.isinf(p) else f"p={p:g}"


def hand_normalize(x: Tensor, p: float) -> Tensor:
    """What people write."""
    return F.normalize(x, p=p, dim=-1)


def candidates(causal: bool, head_dim: int) -> dict[str, Attention]:
    """Plain attention first, then ours and the others for every p.

    g is as sharp for every p: under one and the same g a large p saturates the softmax, whose denormal probabilities
    slow down every attention behind it, whoever normalised.
    """

    def start(p: float) -> Tensor:
        return torch.tensor(qknorm.comparable_scale(p, head_dim, G), requires_grad=True)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def ours(p: float) -> Attention:
        g = start(p)
        return lambda q, k, v: qknorm.qk_attention(q, k, v, g, p=p, is_causal=causal)

    def hand_written(p: float) -> Attention:
        g = start(p)
        return lambda q, k, v: F.scaled_dot_product_attention(
            hand_normalize(q, p) * g, hand_normalize(k, p), v, is_causal=causal, scale=1.0
        )

    g_at_2 = start(2.0)

    def unfused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = g_at_2 * hand_normalize(q, 2.0) @ hand_normalize(k, 2.0).transpose(-2, -1)
        if causal:
            logits = logits.masked_fill(torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        return logits.softmax(-1) @ v

    table: dict[str, Attention] = {"plain": plain}
    for p in P_VALUES:
        table[f"qknorm {label(p)}"] = ours(p)
        table[f"F.normalize {label(p)}"] = hand_written(p)
    table["unfused p=2"] = unfused
    return table


def module_candidates(causal: bool, embed_dim: int, heads: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Whole attention modules with projections; x-transformers' too, where it is installed."""
    plain = qknorm.QKNormAttention(embed_dim, heads, qk_norm=None, bias=False)
    ours = qknorm.QKNormAttention(embed_dim, heads, bias=False)
    compiled = torch.compile(ours, fullgraph=True)
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "plain": lambda x: plain(x, is_causal=causal),
        "QKNormAttention p=2": lambda x: ours(x, is_causal=causal),
        "QKNormAttention p=2, compiled": lambda x: compiled(x, is_causal=causal),
    }
    try:
        from x_transformers.x_transformers import Attention as XAttention
    except ImportError:
        return table
    size = {"heads": heads, "dim_head": embed_dim // heads}
    return table | {
        "x-transformers plain": XAttention(embed_dim, causal=causal, flash=True, **size),
        "x-transformers qk_norm": XAttention(embed_dim, causal=causal, flash=True, qk_norm=True, **size),
    }


def interleaved(
    functions: dict[str, Callable[..., Tensor]], inputs: list[Tensor], seconds: float, title: str
) -> dict[str, Any]:
    """Median milliseconds of plain attention, and each candidate's median ratio to its neighbours in time."""
    out_gradient = torch.randn_like(inputs[0])

    def turn(function: Callable[..., Tensor]) -> dict[str, float]:
        forward: list[float] = []
        both: list[float] = []
        began = time.perf_counter()
        while len(both) < 2 or (len(both) < 5 and time.perf_counter() - began < SECONDS_PER_TURN):
            start = time.perf_counter()
            with torch.no_grad():
                function(*inputs)
            forward.append(time.perf_counter() - start)
            for tensor in inputs:
                tensor.grad = None
            start = time.perf_counter()
            function(*inputs).backward(out_gradient)
            both.append(time.perf_counter() - start)
        return {"forward": statistics.median(forward[1:]), "both": statistics.median(both[1:])}

    plain = functions["plain"]
    others = {name: function for name, function in functions.items() if name != "plain"}
    result: dict[str, dict[str, list[float]]] = {name: {"forward": [], "both": []} for name in others}
    plain_turns: list[dict[str, float]] = []

    def one_round() -> None:
        plain_turns.append(turn(plain))
        for name, function in others.items():
            spent = turn(function)
            plain_turns.append(turn(plain))
            for kind, values in result[name].items():
                neighbours = (plain_turns[-2][kind] + plain_turns[-1][kind]) / 2
                values.append(spent[kind] / neighbours)

    for function in functions.values():  # kernels are compiled here
        turn(function)
    start = time.perf_counter()
    one_round()
    rounds = max(3, round(seconds / (time.perf_counter() - start)))
    for _ in track(range(rounds), description=title, transient=True):
        one_round()
    return {
        "plain milliseconds": {
            kind: 1000 * statistics.median(times[kind] for times in plain_turns) for kind in ("forward", "both")
        },
        "ratio": {
            name: {kind: statistics.median(values) for kind, values in kinds.items()} for name, kinds in result.items()
        },
        "rounds": rounds + 1,
    }


def peak_memory(name: str, length: int) -> float:
    """MiB that one forward + backward at this length adds to a process of its own at its peak."""
    command = [sys.executable, "-m", "benchmarks.attention", "--one-peak", name, str(length)]
    # glibc then returns every freed tensor at once, so that the peak is that of live tensors, not of fragmentation.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def print_own_peak(name: str, length: int) -> None:
    function = candidates(causal=True, head_dim=64)[name]

    def run(shape: tuple[int, ...]) -> None:
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
        function(q, k, v).backward(torch.randn(shape))

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    run((1, 1, 8, 64))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = status("VmRSS")
    run((2, 8, length, 64))
    print((status("VmHWM") - before) / 1024)


def shape_name(shape: tuple[int, ...], causal: bool) -> str:
    return f"({', '.join(map(str, shape))})" + (" causal" if causal else "")


def measure(quick: bool, console: Console) -> dict[str, Any]:
    seconds = 3.0 if quick else 60.0
    result: dict[str, Any] = {
        "machine": machine(),
        "command": "make bench",
        "time": [],
        "module": [],
        "memory": [],
    }
    for shape, causal, target in SHAPES:
        inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        title = shape_name(shape, causal)
        measured = interleaved(candidates(causal, shape[-1]), inputs, seconds, title)
        result["time"].append({"shape": title, "target": target, **measured})
        print_times(result["time"][-1], console)
        batch, heads, length, head_dim = shape
        modules = module_candidates(causal, heads * head_dim, heads)
        if modules:
            x = [torch.randn(batch, length, heads * head_dim, requires_grad=True)]
            result["module"].append({"shape": title, **interleaved(modules, x, seconds / 3, title + " modules")})
    if result["module"]:
        print_modules(result["module"], console)
    if os.access("/proc/self/clear_refs", os.W_OK):
        for length in MEMORY_LENGTHS[: 2 if quick else None]:
            names = ("plain", "qknorm p=2", "qknorm p=3", "F.normalize p=2", "unfused p=2")
            peaks = {name: peak_memory(name, length) for name in names if length <= 4096 or "unfused" not in name}
            result["memory"].append({"length": length, "mib": peaks})
        print_memory(result["memory"], console)
    return result


def print_times(row: dict[str, Any], console: Console) -> None:
    table = Table(title=f"{row['shape']}: times plain attention", title_justify="left")
    for heading in ("", "forward", "forward + backward", "F.normalize: forward", "forward + backward"):
        table.add_column(heading, justify="right" if heading else "left")
    for p in P_VALUES:
        ours, hand = row["ratio"][f"qknorm {label(p)}"], row["ratio"][f"F.normalize {label(p)}"]
        colour = "green" if ours["both"] <= row["target"] else "red"
        table.add_row(
            label(p),
            f"{ours['forward']:.2f}",
            f"[{colour}]{ours['both']:.2f}[/]",
            f"{hand['forward']:.2f}",
            f"{hand['both']:.2f}",
        )
    unfused = row["ratio"]["unfused p=2"]
    table.add_row("unfused p=2", "", "", f"{unfused['forward']:.2f}", f"{unfused['both']:.2f}")
    console.print(table)


def print_modules(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="Whole modules, forward + backward: times QKNormAttention(qk_norm=None)", title_justify="left")
    table.add_column("shape")
    names = list(rows[0]["ratio"])
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row["shape"], *(f"{row['ratio'][name]['both']:.2f}" for name in names))
    console.print(table)


def print_memory(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="Peak memory of forward + backward, (2, 8, length, 64) causal", title_justify="left")
    names = list(rows[0]["mib"])
    for heading in ("length", "plain MiB", *(f"{name} ×" for name in names[1:])):
        table.add_column(heading, justify="right")
    for row in rows:
        base = row["mib"]["plain"]
        others = (f"{row['mib'][name] / base:.2f}" if name in row["mib"] else "–" for name in names[1:])
        table.add_row(str(row["length"]), f"{base:.0f}", *others)
    console.print(table)


def verdict(result: dict[str, Any]) -> list[str]:
    """Each target that was missed, as a sentence."""
    missed = []
    for row in result["time"]:
        for p in P_VALUES:
            ours, hand = row["ratio"][f"qknorm {label(p)}"]["both"], row["ratio"][f"F.normalize {label(p)}"]["both"]
            if ours > row["target"]:
                missed.append(f"{row['shape']} {label(p)}: {ours:.2f} × plain, target {row['target']}")
            if ours > hand:
                missed.append(f"{row['shape']} {label(p)}: {ours:.2f}, slower than hand-written ({hand:.2f})")
    for row in result["memory"]:
        for name in ("qknorm p=2", "qknorm p=3"):
            ratio = row["mib"][name] / row["mib"]["plain"]
            if ratio > MEMORY_TARGET:
                missed.append(f"memory at length {row['length']}, {name}: {ratio:.2f} × plain, target {MEMORY_TARGET}")
    return missed


def draw(result: dict[str, Any], path: Path) -> None:
    plt = agg_pyplot()
    figure, axes = plt.subplots(1, len(result["time"]), figsize=(13, 3.6), sharey=True, layout="constrained")
    positions = list(range(len(P_VALUES)))
    for axis, row in zip(axes, result["time"], strict=True):
        for offset, name, colour in ((-0.2, "F.normalize", "#bbbbbb"), (0.2, "qknorm", "#0072b2")):
            heights = [row["ratio"][f"{name} {label(p)}"]["both"] for p in P_VALUES]
            axis.bar([x + offset for x in positions], heights, 0.4, color=colour, label=name)
        axis.axhline(1, color="black", linewidth=1, label="plain attention")
        axis.axhline(row["target"], color="#d55e00", linewidth=1, linestyle="--", label="target")
        axis.set_title(row["shape"], fontsize=10)
        axis.set_xticks(positions, [label(p).removeprefix("p=") for p in P_VALUES])
        axis.set_xlabel("p")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("time, forward + backward,\nrelative to plain attention")
    axes[-1].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; noisy")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the JSON and the PNG")
    parser.add_argument("--one-peak", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_peak:
        print_own_peak(arguments.one_peak[0], int(arguments.one_peak[1]))
        return
    torch.manual_seed(0)
    console = Console()
    result = measure(arguments.quick, console)
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw(result, arguments.out / "attention.png")
    sys.exit(finish("attention", result, verdict(result), arguments.out, console))


if __name__ == "__main__":
    main()
