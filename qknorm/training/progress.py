"""What people and programs learn about a run while it trains: the screen, metrics.jsonl and loggers."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from torch import nn

from qknorm import processes
from qknorm.data.textfiles import read_lines, replacing
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training.loggers.logger import Logger
from qknorm.training.loggers.table import LOGGERS
from qknorm.training.validation import Validation

_SECONDS_BETWEEN_LINES = 20.0
_SECONDS_BETWEEN_STATUS = 1.0


@dataclass(frozen=True)
class Status:
    """Where a run stands."""

    step: int
    most_steps: int
    """The run has ended then at the latest."""
    seconds: float
    tokens_per_second: float
    train_loss: float
    """Since the last validation."""
    lr: float
    seconds_left: float
    """Until `most_steps`, at the speed so far, validations included."""

    def __str__(self) -> str:
        return (
            f"{_minutes(self.seconds)}, update {self.step:,} of {self.most_steps:,}: loss {self.train_loss:.3f}, "
            f"lr {self.lr:.2e}, {self.tokens_per_second:,.0f} tokens/s, at most {_minutes(self.seconds_left)} left"
        )


def read_status(run: Run) -> Status | None:
    """Where a run stands that another process has under way."""
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there yet, or just being written
        return Status(**json.loads(run.status_file.read_text()))
    return None


def forget_status(run: Run) -> None:
    """What a killed process wrote says nothing any more."""
    run.status_file.unlink(missing_ok=True)


class Report:
    """While entered: a bar where a person watches, or else a line every 20 seconds; the metrics in files.

    Without a bar, status.json says every second how far the run is, to whoever watches it from another process.
    """

    def __init__(self, run: Run, console: Screen, loggers: Sequence[str] = ()) -> None:
        self.run, self.console = run, console
        self._metrics = run.metrics_file
        self._names, self._resumed_after = loggers, 0
        self._loggers: list[Logger] = []
        self._bar: Progress | None = None
        self._last_line = self._last_status = time.monotonic()

    def __enter__(self) -> Self:
        self._loggers = [LOGGERS[name](self.run, self._resumed_after) for name in self._names]
        if self.console.is_terminal and not self.console.quiet:
            whole, cut = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1)  # in a narrow window
            self._bar = Progress(
                MofNCompleteColumn(table_column=whole),
                BarColumn(20, table_column=whole),
                TextColumn("{task.description}", table_column=cut),
                console=self.console,
                expand=True,
            )
            self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        for logger in self._loggers:
            logger.close()

    def updated(self, status: Status) -> None:
        """After every update."""
        if self._bar is not None:
            text = str(status).partition(": ")[2]
            self._bar.update(self._bar.task_ids[0], completed=status.step, total=status.most_steps, description=text)
            return
        now = time.monotonic()
        is_due = now - self._last_status >= _SECONDS_BETWEEN_STATUS or status.step == status.most_steps
        if processes.rank() == 0 and is_due:
            self._last_status = now
            with contextlib.suppress(OSError):  # who looks on may miss a line; the run must not end for it
                self.run.status_file.write_text(json.dumps(asdict(status)))
        if now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self.say(str(status))

    def validated(self, status: Status, validation: Validation, model: nn.Module) -> None:
        """After every validation: to the screen and to the files."""
        scales, measures = scales_of(model), validation.line()
        self._write(status, measures, scales)
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in measures.items() if isinstance(value, float))
        self.say(f"{status}\n  {numbers}" + (f"\n  g: {_compact(scales)}" if scales else ""))

    def forget_after(self, step: int) -> None:
        """Drop what a killed run wrote about later validations, a half-written line among them: they come again."""
        self._resumed_after = step
        if not self._metrics.exists():
            return
        kept = []
        for line in read_lines(self._metrics):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if json.loads(line)["step"] <= step:
                    kept.append(line)
        with replacing(self._metrics) as file:
            file.writelines(line.encode() + b"\n" for line in kept)

    def _write(self, status: Status, measures: dict[str, Any], scales: dict[str, float | list[float]]) -> None:
        line = {
            "step": status.step,
            "seconds": round(status.seconds, 2),
            "tokens_per_second": round(status.tokens_per_second, 1),
            "train_loss": status.train_loss,
            "lr": status.lr,
            **measures,
            "scales": scales,
        }
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        means = {f"g/{name}": _mean(scale) for name, scale in scales.items()}
        numbers = {name: value for name, value in line.items() if isinstance(value, float)}
        for logger in self._loggers:
            logger.log(numbers | means, status.step)

    def say(self, text: str) -> None:
        """Print some lines above the bar."""
        self._last_line = time.monotonic()
        self.console.print(text)


def scales_of(model: nn.Module) -> dict[str, float | list[float]]:
    """g of each attention module: a number, or one per head."""
    return {
        name.removesuffix(".q_norm.scale"): parameter.item() if parameter.numel() == 1 else parameter.tolist()
        for name, parameter in model.named_parameters()
        if name.endswith("q_norm.scale")
    }


def _compact(scales: dict[str, float | list[float]]) -> str:
    """One list per kind of attention, a number for each layer: the mean of its heads."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name, scale in scales.items():
        kinds[re.sub(r"\.\d+", "", name)].append(f"{_mean(scale):.2f}")
    return ", ".join(f"{kind} {' '.join(values)}" for kind, values in kinds.items())


def _mean(scale: float | list[float]) -> float:
    return sum(scale) / len(scale) if isinstance(scale, list) else scale


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"
