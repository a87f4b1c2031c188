"""Many runs as a SLURM job array: a script whose tasks train one run each.

RUNS/slurm.sh  slurm.json (the runs of its tasks)   slurm-JOB_TASK.out (what SLURM writes)

    python -m qknorm.experiments.slurm RUNS/slurm.json TASK      what a task does
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.cells import Cell, begin_missing, cores, run_cell
from qknorm.runs.any_recipe import RECIPES
from qknorm.screen import Screen


@dataclass
class Slurm:
    """Collects what is missing, of one or more calls, for one script."""

    cells: dict[str, Cell] = field(default_factory=dict)
    """By their names."""

    def threads(self, _runs: int) -> int:
        """As many as a task is given cores, of which a machine like this one is expected to have as many."""
        return cores()

    def run_missing(self, _title: str, cells: Sequence[Cell], folder: Path, _console: Screen) -> dict[str, str]:
        """Leave to the script what is not done yet; nothing has failed so far."""
        self.cells |= {cell.name: cell for cell in begin_missing(cells, folder)}
        return {}

    def write(self, folder: Path) -> Path:
        """The script. Wherever a task begins it works in the folder of this process, with this Python."""
        script, listed = folder / "slurm.sh", folder / "slurm.json"
        with replacing(listed) as file:
            tasks = [{"name": cell.name, "recipe": cell.recipe.model_dump(mode="json")} for cell in self.cells.values()]
            file.write(json.dumps(tasks).encode())
        task = shlex.join([sys.executable, "-m", "qknorm.experiments.slurm", str(listed.resolve())])
        lines = [
            "#!/bin/sh",
            f"#SBATCH --array=0-{len(tasks) - 1}",
            f"#SBATCH --chdir={Path.cwd()}",
            f"#SBATCH --output={folder.resolve()}/slurm-%A_%a.out",
            f'exec {task} "$SLURM_ARRAY_TASK_ID"',
        ]
        with replacing(script) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
        return script


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
    """Train one run of a script; returns why it failed, if it did. SLURM has given it its cores and its GPU."""
    task = json.loads(listed.read_text(encoding="utf-8"))[number]
    recipe = RECIPES[task["recipe"]["task"]].model_validate(task["recipe"])
    _, outcome = run_cell(Cell(task["name"], {}, recipe), listed.parent / task["name"], cores(), parent=0, gpus=[])
    return outcome if isinstance(outcome, str) else None


if __name__ == "__main__":
    sys.exit(run_task(Path(sys.argv[1]), int(sys.argv[2])))
