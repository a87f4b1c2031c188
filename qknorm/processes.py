"""Several processes that train one model, started by torchrun. For a process alone, nothing here has any effect."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")

# The others wait while the first one validates. A process that dies needs no time limit: torchrun then ends them all.
_PATIENCE = timedelta(hours=24)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Join the processes that torchrun started beside this one, if any; one that did, ends where this block ends.

    The first process that fails speaks for all. Whatever fails after it fails alike or because of it, and is silent.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    store, rank, world_size = next(rendezvous("env://"))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=_PATIENCE)
    try:
        yield
    except Exception:
        if store.add("failures", 1) > 1:
            raise SystemExit(2) from None
        raise
    dist.destroy_process_group()
    _end()


def _end() -> None:
    """End this process at once, with everything said.

    torch never ends the threads of a process group that DistributedDataParallel has used. One that still lets go of
    its last tensor while the interpreter is taken apart aborts the process, and torchrun then kills all others.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def rank() -> int:
    """The number of this process. Number 0 alone prints, validates and writes."""
    return dist.get_rank() if dist.is_initialized() else 0


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def device() -> torch.device:
    """The GPU of this process, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def command_to_resume(folder: Path, processes: int = 1) -> str:
    """What to type so that the run in `folder` goes on."""
    started = f"torchrun --nproc-per-node {processes} -m qknorm" if processes > 1 else "qknorm"
    return f"{started} train {shlex.quote(str(folder))} --resume"


def summed(*numbers: float | Tensor) -> list[float]:
    """Each number added up over all processes."""
    totals = torch.stack([torch.as_tensor(number, dtype=torch.float64, device=device()) for number in numbers])
    if count() > 1:
        dist.all_reduce(totals)
    return totals.tolist()


def gathered(mine: T) -> list[T]:
    """The values of all processes, in the order of their numbers."""
    values = [mine] * count()
    if count() > 1:
        dist.all_gather_object(values, mine)
    return values


def from_first(do: Callable[[], T]) -> T:
    """What process 0 finds out, made known to all. Ctrl-C there is Ctrl-C for all."""
    box: list[Any] = [None, False]
    if rank() == 0:
        try:
            box[0] = do()
        except KeyboardInterrupt:
            box[1] = True
    if count() > 1:
        dist.broadcast_object_list(box)
    outcome, was_interrupted = box
    if was_interrupted:
        raise KeyboardInterrupt
    result: T = outcome
    return result


def first_then_others(do: Callable[[], T]) -> T:
    """Process 0 does it before the others do the same, so that they find ready what it leaves on disk."""
    if rank() > 0:
        dist.barrier()
        return do()
    done = do()
    if count() > 1:
        dist.barrier()
    return done
