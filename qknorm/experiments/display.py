"""What a person sees of many runs: one bar for all, one for each that is under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from qknorm.experiments.cells import Cell
from qknorm.runs.contents import Status
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training.progress import told

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_BETWEEN_LINES = 30.0


class Display:
    """One bar for all runs and one for each that is under way; lines now and then where nobody sees bars."""

    def __init__(self, title: str, total: int, missing: Sequence[Cell], folder: Path, console: Screen) -> None:
        self._folder, self._console = folder, console
        self._left = {cell.name for cell in missing}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=7200,
        )
        self._all = self._progress.add_task(title, total=total, text="")
        self._total, self._bars = total, dict[str, TaskID]()
        self._ended, self._last_lines = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._progress.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._console.is_terminal:
            self._draw({})  # as it stands at the end
        self._progress.stop()

    def finished(self, name: str, outcome: str) -> None:
        self._left.discard(name)
        self._console.print(f"{name}: {outcome}")

    def _look(self) -> None:
        """Read what the runs under way say of themselves, in a thread."""
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            statuses = {name: Run(self._folder / name).status() for name in sorted(self._left)}
            under_way = {name: status for name, status in statuses.items() if status is not None}
            if self._console.is_terminal:
                self._draw(under_way)
            elif time.monotonic() - self._last_lines >= _SECONDS_BETWEEN_LINES:
                self._last_lines = time.monotonic()
                for name, status in under_way.items():
                    self._console.print(f"{name}: {told(status)}")

    def _draw(self, under_way: Mapping[str, Status]) -> None:
        done = self._total - len(self._left)
        parts = sum(status.step / status.most_steps for status in under_way.values())
        self._progress.update(self._all, completed=done + parts, text=f"{done}/{self._total} runs")
        for name, status in under_way.items():
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(f"  {name}", total=status.most_steps, text="")
            text = f"loss {status.train_loss:.3f}, {status.tokens_per_second:,.0f} tokens/s"
            self._progress.update(self._bars[name], completed=status.step, text=text)
        for name in self._bars.keys() - under_way.keys():
            self._progress.remove_task(self._bars.pop(name))
