from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from qknorm.errors import InputError
from qknorm.experiments.gpus import gpu_of_its_own
from qknorm.experiments.plan import Plan
from qknorm.experiments.slurm import Slurm, run_task, submit
from qknorm.experiments.spanned import plan_sweep
from qknorm.screen import Screen
from tests.caches import new_cache
from tests.sweeps import results_in

# Like sbatch, but every task of the array runs at once, and here. It reads directives as words, in quotes or not, and
# knows of the signs that stand for something in the name of a task's output only those that the script should have.
SBATCH = """#!{python}
import os, re, shlex, subprocess, sys
directives = re.findall("^#SBATCH (.*)", open(sys.argv[1]).read(), re.MULTILINE)
given = dict(word.split("=", 1) for line in directives for word in shlex.split(line, comments=True))
first, last = map(int, re.match(r"(\\d+)-(\\d+)", given["--array"]).groups())
for task in range(first, last + 1):
    signs = {{"A": "17", "a": str(task), "%": "%"}}
    with open(re.sub("%(.)", lambda sign: signs[sign[1]], given["--output"]), "w") as output:
        environment = os.environ | {{"SLURM_ARRAY_TASK_ID": str(task)}}
        command, said = ["sh", sys.argv[1]], dict(stdout=output, stderr=subprocess.STDOUT)
        subprocess.run(command, cwd=given["--chdir"], env=environment, check=True, **said)
print("Submitted batch job 17")
"""


def sbatch(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for SLURM's command of that name."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sbatch").write_text(text)
    (folder / "bin" / "sbatch").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


def left_to_slurm(folder: Path, *changes: str, at_once: int | None = None) -> Slurm:
    slurm = Slurm(at_once)
    assert tiny(folder, *changes).run(folder / "out", Screen(quiet=True), slurm) == {}
    return slurm


def tiny(folder: Path, *changes: str) -> Plan:
    return plan_sweep(folder / "tiny.yaml", None, ["folds=null", *changes])


def test_each_task_of_the_array_trains_one_run_wherever_that_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder has spaces, and signs that mean something to SLURM."""
    sbatch(folder, SBATCH.format(python=sys.executable), monkeypatch)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    place = folder / 'Ann\'s 100%a "own" #1 runs'
    place.mkdir()
    for name in ("text", "tiny.yaml"):
        shutil.copy(folder / name, place)
    monkeypatch.chdir(place)
    slurm = left_to_slurm(place)
    assert list(slurm.cells) == ["p-2", "p-3", "qk_norm-none"]
    assert {result.status for result in results_in(place / "out")} == {"missing"}
    script = slurm.write(place / "out")
    monkeypatch.chdir("/")  # tasks begin where the script was written, wherever it is submitted
    assert submit(script) == "Submitted batch job 17"
    assert {result.status for result in results_in(place / "out")} == {"done"}
    assert {path.name for path in (place / "out").glob("*.out")} == {f"slurm-17_{task}.out" for task in range(3)}
    monkeypatch.chdir(place)
    assert not left_to_slurm(place).cells, "what is done is not run again"


def list_in(script: Path) -> Path:
    """The runs of a script's tasks."""
    (path,) = re.findall(r"\S+\.json", script.read_text())
    return Path(path)


def test_what_is_queued_keeps_its_run_when_the_command_is_called_again(folder: Path) -> None:
    queued, same = (list_in(left_to_slurm(folder).write(folder / "out")) for _ in range(2))
    assert queued == same
    assert run_task(queued, 0) is None
    slurm = left_to_slurm(folder)
    assert list(slurm.cells) == ["p-3", "qk_norm-none"]
    assert list_in(slurm.write(folder / "out")) != queued
    assert run_task(queued, 2) is None
    assert list(left_to_slurm(folder).cells) == ["p-3"]


def test_no_more_tasks_at_once_than_somebody_wants(folder: Path) -> None:
    assert "#SBATCH --array=0-2\n" in left_to_slurm(folder).write(folder / "out").read_text()
    assert "#SBATCH --array=0-2%2\n" in left_to_slurm(folder, at_once=2).write(folder / "out").read_text()


@pytest.mark.parametrize(("given", "taken"), [("", [2]), ("5", [])], ids=["not managed by SLURM", "given by SLURM"])
def test_a_task_takes_a_gpu_that_no_other_has_unless_slurm_gave_it_one(
    given: str, taken: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setenv("QKNORM_CACHE", new_cache(folder / "cache"))
    monkeypatch.setenv("SLURM_JOB_GPUS", given)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    listed = list_in(left_to_slurm(folder).write(folder / "out"))
    with gpu_of_its_own(None), gpu_of_its_own(None):
        assert found == [0, 1]
        assert run_task(listed, 0) is None
    assert found[2:] == taken


def test_a_task_that_fails_says_why_and_leaves_the_others(folder: Path) -> None:
    changes = ["peak=1.0e+38", "iterations=4"]
    script = left_to_slurm(folder, *changes).write(folder / "out")
    assert {result.status for result in results_in(folder / "out")} == {"missing"}
    environment = os.environ | {"SLURM_ARRAY_TASK_ID": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "the loss is" in done.stderr
    again = Slurm()
    failures = tiny(folder, *changes).run(folder / "out", Screen(quiet=True), again)
    assert list(failures) == ["p-2"]
    assert "the loss is" in failures["p-2"]
    assert list(again.cells) == ["p-2", "p-3", "qk_norm-none"], "it is tried again"
    assert [result.status for result in results_in(folder / "out")] == ["failed", "missing", "missing"]


def test_a_missing_or_refusing_sbatch_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = left_to_slurm(folder).write(folder / "out")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(InputError, match=r"there is no command sbatch on this machine; .*slurm.sh can be submitted"):
        submit(script)
    sbatch(folder, "#!/bin/sh\necho 'sbatch: error: invalid partition' >&2; exit 1\n", monkeypatch)
    with pytest.raises(InputError, match=r"sbatch refused .*slurm.sh: sbatch: error: invalid partition"):
        submit(script)
