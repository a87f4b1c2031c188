from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.writer import only_writer

HOLD = """
import sys, time
from pathlib import Path
from qknorm.runs.writer import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"is being written by process {holder.pid} on "), only_writer(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with only_writer(tmp_path):  # a lock does not outlive its process
            pass


def test_what_dead_writers_left_half_done_is_removed(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for left in (tmp_path / ".metrics.jsonl.abc.part", tmp_path / "checkpoints" / ".best.xyz.part"):
        left.write_text("half")
    with only_writer(tmp_path):
        assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {".writer"}


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    """The parent is killed; its worker, which looks every second, ends by itself."""
    code = """
import os, subprocess, sys
worker = "import time; from qknorm.experiments.cells import _die_with as d; d({}); print(flush=True); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", worker.format(os.getpid())])
print(process.pid, flush=True)
process.wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert parent.stdout.readline() == "\n"  # it has begun looking
    parent.kill()
    parent.wait()
    parent.stdout.close()
    status = Path(f"/proc/{worker}/stat")
    for _ in range(100):
        if not status.exists() or ") Z " in status.read_text():
            return
        time.sleep(0.2)
    os.kill(worker, 9)
    pytest.fail("the worker went on")
