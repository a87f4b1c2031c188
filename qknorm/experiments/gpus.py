"""The GPUs of a machine, one for each of many runs."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from filelock import BaseFileLock, FileLock, Timeout

from qknorm.cache import cache_folder
from qknorm.errors import InputError

_SECONDS_BETWEEN_TRIES = 1.0


def chosen_gpus(listed: str | None) -> list[int]:
    """Those of this machine that runs are spread over: all, or some by their numbers, such as 0,2."""
    present = range(torch.cuda.device_count())
    if listed is None:
        return list(present)
    known = f"its GPUs are {', '.join(map(str, present))}" if present else "it has none"
    chosen = [part.strip() for part in listed.split(",")]
    for part in chosen:
        if not part.isdecimal() or int(part) not in present:
            raise InputError(f"--gpus: there is no GPU {part!r} on this machine; {known}")
    return sorted({int(part) for part in chosen})


@contextlib.contextmanager
def gpu_of_its_own(gpus: Sequence[int] | None) -> Iterator[None]:
    """Within it no other run has the GPU that this process computes on; one that finds all of them taken waits.

    gpus: those it may take; None for all that this process sees. Without a GPU there is nothing to take.
    """
    choice = range(torch.cuda.device_count()) if gpus is None else gpus
    if not choice:
        yield
        return
    index, lock = _first_free(choice)
    try:
        torch.cuda.set_device(index)
        yield
    finally:
        lock.release()


def _first_free(gpus: Sequence[int]) -> tuple[int, BaseFileLock]:
    while True:
        for index in gpus:
            lock = FileLock(_lock(index))
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                return index, lock
        time.sleep(_SECONDS_BETWEEN_TRIES)


def _lock(index: int) -> Path:
    """A file that stands for a GPU of this machine, by its number among all of them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = visible.split(",")[index] if visible else str(index)
    folder = cache_folder() / "gpus"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{socket.gethostname()}-{number}.lock"
