"""Many runs as a SLURM job array: a script whose tasks train one run each.

RUNS/slurm.sh  slurm-DIGEST.json (the runs of its tasks)   slurm-JOB_TASK.out (what SLURM writes)

    python -m qknorm.experiments.slurm RUNS/slurm-DIGEST.json TASK      what a task does
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.cells import Cell, check_missing, cores, run_cell
from qknorm.runs.any_recipe import RECIPES
from qknorm.runs.run import Run
from qknorm.screen import Screen


@dataclass
class Slurm:
    """Collects what is missing, of one or more calls, for one script."""

    at_once: int | None = None
    """At most this many of its tasks run at a time; without it, as many as SLURM has room for."""
    cells: dict[str, Cell] = field(default_factory=dict)
    """By their names."""

    def threads(self, _runs: int) -> int:
        """As many as a task is given cores, of which a machine like this one is expected to have as many."""
        return cores()

    def run_missing(self, _title: str, cells: Sequence[Cell], folder: Path, _console: Screen) -> dict[str, str]:
        """Leave to the script what is not done yet; returns why tasks of earlier scripts failed."""
        missing = {cell.name: cell for cell in check_missing(cells, folder)}
        self.cells |= missing
        failures = {name: Run(folder / name).failure() for name in missing}
        return {name: reason for name, reason in failures.items() if reason is not None}

    def write(self, folder: Path) -> Path:
        """The script. Wherever a task begins it works in the folder of this process, with this Python.

        Tasks know their run by its number in a list. What is still queued must find the list it was written with, so
        each list has a name of its own.
        """
        tasks = [{"name": cell.name, "recipe": cell.recipe.model_dump(mode="json")} for cell in self.cells.values()]
        content = json.dumps(tasks).encode()
        script, listed = folder / "slurm.sh", folder / f"slurm-{hashlib.sha256(content).hexdigest()[:16]}.json"
        with replacing(listed) as file:
            file.write(content)
        limit = "" if self.at_once is None else f"%{self.at_once}"
        task = shlex.join([sys.executable, "-m", "qknorm.experiments.slurm", str(listed.resolve())])
        output = str(folder.resolve()).replace("%", "%%") + "/slurm-%A_%a.out"
        lines = [
            "#!/bin/sh",
            f"#SBATCH --array=0-{len(tasks) - 1}{limit}",
            f"#SBATCH --chdir={_quoted(str(Path.cwd()))}",
            f"#SBATCH --output={_quoted(output)}",
            f'exec {task} "$SLURM_ARRAY_TASK_ID"',
        ]
        with replacing(script) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
        return script


def _quoted(text: str) -> str:
    """For a directive, in which a backslash escapes what follows in single quotes, too: shlex.quote is for shells."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def submit(script: Path) -> str:
    """Hand a script to SLURM, whose own settings (SBATCH_PARTITION, SBATCH_TIMELIMIT, …) apply; returns its answer."""
    try:
        done = subprocess.run(["sbatch", str(script)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError(
            f"there is no command sbatch on this machine; {script} can be submitted from another"
        ) from None
    if done.returncode:
        raise InputError(f"sbatch refused {script}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()


def run_task(listed: Path, number: int) -> str | None:
    """Train one run of a script; returns why it failed, if it did.

    A GPU that SLURM has given it is its own, and may be number 0 to every task, so that locks by number would let tasks
    wait for each other. Where SLURM has given none, it takes one that no other run has, if it sees any.
    """
    task = json.loads(listed.read_text(encoding="utf-8"))[number]
    recipe = RECIPES[task["recipe"]["task"]].model_validate(task["recipe"])
    gpus: list[int] | None = [] if os.environ.get("SLURM_JOB_GPUS") else None
    _, outcome = run_cell(Cell(task["name"], {}, recipe), listed.parent / task["name"], cores(), parent=0, gpus=gpus)
    return outcome if isinstance(outcome, str) else None


if __name__ == "__main__":
    sys.exit(run_task(Path(sys.argv[1]), int(sys.argv[2])))
