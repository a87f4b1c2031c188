from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.slurm import Slurm, submit
from qknorm.experiments.sweep import grid as sweeps
from qknorm.experiments.sweep.results import load_results
from qknorm.screen import Screen

# Like sbatch, but every task of the array runs at once, and here.
SBATCH = """#!{python}
import re, subprocess, sys, os
script = open(sys.argv[1]).read()
first, last = map(int, re.search(r"--array=(\\d+)-(\\d+)", script).groups())
folder = re.search(r"--chdir=(.*)", script)[1]
for task in range(first, last + 1):
    subprocess.run(["sh", sys.argv[1]], cwd=folder, env=os.environ | {{"SLURM_ARRAY_TASK_ID": str(task)}}, check=True)
print("Submitted batch job 17")
"""


def sbatch(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for SLURM's command of that name."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sbatch").write_text(text)
    (folder / "bin" / "sbatch").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


def left_to_slurm(folder: Path, *changes: str) -> Slurm:
    slurm = Slurm()
    planned = sweeps.plan(folder / "tiny.yaml", None, ["folds=null", *changes])
    assert sweeps.run(planned, folder / "out", Screen(quiet=True), slurm) == {}
    return slurm


def test_each_task_of_the_array_trains_one_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch(folder, SBATCH.format(python=sys.executable), monkeypatch)
    slurm = left_to_slurm(folder)
    assert list(slurm.cells) == ["p-2", "p-3", "qk_norm-none"]
    assert {result.status for result in load_results(folder / "out")} == {"missing"}
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    script = slurm.write(folder / "out")
    monkeypatch.chdir("/")  # tasks begin where the script was written, wherever it is submitted
    assert submit(script) == "Submitted batch job 17"
    assert {result.status for result in load_results(folder / "out")} == {"done"}
    monkeypatch.chdir(folder)
    assert not left_to_slurm(folder).cells, "what is done is not run again"


def test_a_task_that_fails_says_why_and_leaves_the_others(folder: Path) -> None:
    changes = ["peak=1.0e+38", "iterations=4"]
    script = left_to_slurm(folder, *changes).write(folder / "out")
    environment = os.environ | {"SLURM_ARRAY_TASK_ID": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "the loss is" in done.stderr
    assert list(left_to_slurm(folder, *changes).cells) == ["p-2", "p-3", "qk_norm-none"], "it is tried again"


def test_a_missing_or_refusing_sbatch_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = left_to_slurm(folder).write(folder / "out")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(InputError, match=r"there is no command sbatch on this machine; .*slurm.sh can be submitted"):
        submit(script)
    sbatch(folder, "#!/bin/sh\necho 'sbatch: error: invalid partition' >&2; exit 1\n", monkeypatch)
    with pytest.raises(InputError, match=r"sbatch refused .*slurm.sh: sbatch: error: invalid partition"):
        submit(script)
