"""How fast this machine is: matrix products, and updates of a model that is about to be trained."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

_SECONDS_MEASURED = 4.0
_UPDATES_AT_LEAST = 3


def operations_per_second(device: torch.device | None = None, threads: int | None = None) -> float:
    """Of a matrix product in float32; on a CPU with this many threads."""
    with using_threads(threads or torch.get_num_threads()):
        a, b = torch.randn(1024, 512, device=device), torch.randn(512, 512, device=device)
        return 2 * 1024 * 512 * 512 / min(_timed(lambda: a @ b) for _ in range(30))


@contextlib.contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Compute with this many threads on a CPU, and with as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_per_update(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[nn.Module, Any], Tensor], batches: Iterator[Any]
) -> float:
    """Of a typical update, forward pass, backward pass and step of the optimiser: the median of some seconds."""
    model.train()

    def update() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, next(batches)))
        optimizer.step()

    update()  # the first one also compiles kernels and gets memory
    seconds: list[float] = []
    while len(seconds) < _UPDATES_AT_LEAST or sum(seconds) < _SECONDS_MEASURED:
        seconds.append(_timed(update))
    return median(seconds)


def _timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
