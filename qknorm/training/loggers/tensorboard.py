"""TensorBoard, in a folder of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qknorm.runs.run import Run


class TensorBoard:
    def __init__(self, run: Run, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._events: Any = SummaryWriter(str(run.tensorboard_folder), purge_step=after + 1 if after else None)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._events.add_scalar(name, value, step)
        self._events.flush()

    def close(self) -> None:
        self._events.close()
