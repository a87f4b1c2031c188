"""One run has one writer at a time, which clears away what writers before it left half done."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from qknorm.data.textfiles import forget_half_written
from qknorm.errors import InputError

_LOCK = ".writer"


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a run folder; an InputError that names the process which holds it already.

    The system lets go of the lock when a process ends, however it does, so that there are no stale ones.
    """
    new = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _LOCK
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{folder} is being written by {path.read_text() or 'another process'}; wait until it has ended, or stop it"
        ) from None
    try:
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        forget_half_written(folder)
        yield
    finally:
        if new and list(folder.iterdir()) == [path]:  # nothing came of it
            path.unlink()
            for parent in new:
                with contextlib.suppress(OSError):
                    parent.rmdir()
        lock.release()
