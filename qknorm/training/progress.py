"""What people and programs learn about a run while it trains: the screen, metrics.jsonl and loggers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from torch import nn

from qknorm import processes
from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError
from qknorm.runs.contents import Status, ValidationLine
from qknorm.runs.run import Run
from qknorm.screen import Screen, duration
from qknorm.training.loggers.logger import Logger
from qknorm.training.loggers.table import LOGGERS
from qknorm.training.validation import Validation

_SECONDS_BETWEEN_LINES = 20.0
_SECONDS_BETWEEN_STATUS = 1.0


def told(status: Status) -> str:
    """Where a run stands, in a line."""
    return f"{duration(status.seconds)}, update {status.step:,} of {status.most_steps:,}: {_course(status)}"


def _course(status: Status) -> str:
    return (
        f"loss {status.train_loss:.3f}, lr {status.lr:.2e}, {status.tokens_per_second:,.0f} tokens/s, "
        f"at most {duration(status.seconds_left)} left"
    )


class ProgressReport:
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
            bar, text = self._bar.task_ids[0], _course(status)
            self._bar.update(bar, completed=status.step, total=status.most_steps, description=text)
            return
        now = time.monotonic()
        is_due = now - self._last_status >= _SECONDS_BETWEEN_STATUS or status.step == status.most_steps
        if processes.rank() == 0 and is_due:
            self._last_status = now
            with contextlib.suppress(OSError):  # who looks on may miss a line; the run must not end for it
                self.run.status_file.write_text(status.as_text())
        if now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self.say(told(status))

    def validated(self, status: Status, validation: Validation, model: nn.Module) -> None:
        """After every validation: to the screen and to the files."""
        line = ValidationLine(
            step=status.step,
            seconds=round(status.seconds, 2),
            tokens_per_second=round(status.tokens_per_second, 1),
            train_loss=status.train_loss,
            lr=status.lr,
            measures=validation.by_name(),
            scales=scales_of(model),
            **dict(validation.details),
        )
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(line.as_text() + "\n")
        self._log(line)
        self.say(f"{told(status)}\n  {_in_words(line.measures)}")

    def forget_after(self, step: int) -> None:
        """Drop what a killed run wrote about later validations, a half-written line among them: they come again."""
        self._resumed_after = step
        if not self._metrics.exists():
            return
        kept = []
        for line in read_lines(self._metrics):
            with contextlib.suppress(InputError):
                if ValidationLine.of_text(line, "").step <= step:
                    kept.append(line)
        with replacing(self._metrics) as file:
            file.writelines(line.encode() + b"\n" for line in kept)

    def _log(self, line: ValidationLine) -> None:
        """Tell the loggers every number of a validation."""
        means = {f"g/{name}": scale for name, scale in line.mean_scales.items()}
        numbers = {name: value for name, value in line.content().items() if isinstance(value, float)}
        for logger in self._loggers:
            logger.log(numbers | means, line.step)

    def say(self, text: str) -> None:
        """Print some lines above the bar."""
        self._last_line = time.monotonic()
        self.console.print(text)


def _in_words(measures: Mapping[str, float]) -> str:
    """A loss has as many digits as that of training in the line above, a score two."""
    digits = {name: 3 if "loss" in name else 2 for name in measures}
    return ", ".join(f"{name} {value:.{digits[name]}f}" for name, value in measures.items())


def scales_of(model: nn.Module) -> dict[str, float | list[float]]:
    """g of each attention module: a number, or one per head."""
    return {
        name.removesuffix(".q_norm.scale"): parameter.item() if parameter.numel() == 1 else parameter.tolist()
        for name, parameter in model.named_parameters()
        if name.endswith("q_norm.scale")
    }
