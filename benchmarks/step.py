"""A training step of the translator at the planned sizes: its share of the machine's speed, and where the time goes.

    make bench-step [OLD=FOLDER] [THREADS=2]

The share is that of a matrix product of float32 in the same process, measured between the updates; operations are six
for every weight that a position is multiplied with, the vocabulary included. With OLD, a checkout of another commit
takes turns with this one. Prints tables and writes step.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.progress import track
from rich.table import Table

from benchmarks.common import DEFAULT_OUT, finish, machine
from qknorm.screen import Screen

SHAPE: dict[str, Any] = {"dim": 256, "feed_forward": 1024, "layers": [3, 3], "pieces": 3200}
POSITIONS = (1024, 2048, 4096)
SHARE_WANTED, SLOWER_ALLOWED = 0.65, 1.02


class Worker:
    """A process that makes updates with one checkout."""

    def __init__(self, root: Path, threads: int, positions: int, half: bool) -> None:
        script = Path(__file__).with_name("step_worker.py")
        environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root,
        )  # fmt: skip
        self._say(json.dumps(SHAPE | {"positions": positions, "half": half}))
        self.ask("turn")

    def ask(self, what: str) -> dict[str, float]:
        self._say(what)
        assert self._process.stdout is not None
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure a training step.")
    parser.add_argument("--old", type=Path, help="a checkout of another commit, to take turns with")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    arguments = parser.parse_args()
    console, missed, rows = Screen(), [], []
    roots = {"now": Path(__file__).parents[1]} | ({"old": arguments.old.resolve()} if arguments.old else {})
    for half in (False, True):
        for positions in POSITIONS:
            row = measure(roots, arguments.threads, positions, half, arguments.rounds)
            rows.append(row)
            if not half and row["share"] < SHARE_WANTED:
                missed.append(f"{positions} positions: {row['share']:.2f} of the peak, {SHARE_WANTED} wanted")
            if row.get("against_old", 0.0) > SLOWER_ALLOWED:
                missed.append(f"{positions} positions: {row['against_old']:.3f} times the time of the old checkout")
    show(rows, console)
    result = {"machine": machine() | {"threads": arguments.threads}, "shape": SHAPE, "steps": rows}
    return finish("step", result, missed, arguments.out, console)


def measure(roots: dict[str, Path], threads: int, positions: int, half: bool, rounds: int) -> dict[str, Any]:
    """Turns of all checkouts, in alternation; a ratio is that of neighbours."""
    workers = {name: Worker(root, threads, positions, half) for name, root in roots.items()}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for _ in track(range(rounds), f"{positions} positions, {'bfloat16' if half else 'float32'}", transient=True):
        for name, worker in workers.items():
            turns[name].append(worker.ask("turn"))
    row: dict[str, Any] = {
        "positions": positions,
        "precision": "bf16" if half else "float32",
        "milliseconds": round(1000 * median(turn["seconds"] for turn in turns["now"]), 1),
        "share": round(median(turn["share"] for turn in turns["now"]), 3),
        "where": {kind: round(share, 3) for kind, share in workers["now"].ask("profile").items()},
    }
    if "old" in turns:
        compared = zip(turns["now"], turns["old"], strict=True)
        row["against_old"] = round(median(now["seconds"] / old["seconds"] for now, old in compared), 3)
        row["where_old"] = {kind: round(share, 3) for kind, share in workers["old"].ask("profile").items()}
    for worker in workers.values():
        worker.close()
    return row


def show(rows: list[dict[str, Any]], console: Screen) -> None:
    table = Table("positions", "precision", "ms", "share of the peak", "against the old checkout", box=None)
    for row in rows:
        old = f"{row['against_old']:.3f}" if "against_old" in row else ""
        table.add_row(str(row["positions"]), row["precision"], f"{row['milliseconds']}", f"{row['share']:.2f}", old)
    console.print(table)
    kinds = Table("where the time goes", *(f"{row['positions']} {row['precision']}" for row in rows), box=None)
    for kind in rows[0]["where"]:
        kinds.add_row(kind, *(f"{row['where'][kind]:.0%}" for row in rows))
    console.print(kinds)


if __name__ == "__main__":
    sys.exit(main())
