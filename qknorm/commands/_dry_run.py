"""What `--dry-run` prints: the runs that are missing, and a guess of their time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from qknorm.experiments.cells import Cell, cores, missing_in
from qknorm.experiments.estimate import estimated_seconds
from qknorm.screen import Screen


def list_runs(cells: Sequence[Cell], folder: Path, jobs: int | None, as_json: bool) -> None:
    """What would be run, and how long that may take."""
    missing = missing_in(folder, cells)
    seconds = estimated_seconds(missing, jobs)
    total = sum(seconds.values()) / min(jobs or cores(), max(len(missing), 1))
    if as_json:
        listed = [{"run": name, "estimated_seconds": round(value)} for name, value in seconds.items()]
        print(
            json.dumps({"runs": listed, "done": len(cells) - len(missing), "estimated_seconds": round(total)}, indent=1)
        )
        return
    console = Screen()
    print_table(["run", "estimate"], [[name, _duration(value)] for name, value in seconds.items()], console)
    done = len(cells) - len(missing)
    more = f", {done} more {'is' if done == 1 else 'are'} done" if done else ""
    console.print(f"{len(missing)} runs{more}. On this machine about {_duration(total)} in all, by a rough guess.")


def print_table(columns: Sequence[str], lines: Sequence[Sequence[str]], console: Screen) -> None:
    table = Table(*columns, box=None)
    for line in lines:
        table.add_row(*line)
    console.print(table)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:,.1f} h"
