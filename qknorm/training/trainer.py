"""One training loop for every task.

After an interruption the loop goes on from the last checkpoint as if nothing had happened: the checkpoint holds the
weights, the optimiser's memory, the random state, the position in the data and the history of scores.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from torch import Tensor, nn

from qknorm.attention.module import parameter_groups
from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError
from qknorm.training.checkpoint import Checkpoints
from qknorm.training.schedules import Schedule, ValidationDecay

_CHECKPOINTS_KEPT = 2
_SECONDS_BETWEEN_LINES = 20.0


class Batches(Protocol):
    """An endless stream of batches whose position can be saved."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Task(Protocol):
    """What is trained: a model, its data, and how well it does."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def batches(self) -> Batches: ...

    def loss(self, batch: Any) -> tuple[Tensor, int]:
        """The mean loss of a batch, and over how many tokens it is the mean."""
        ...

    def validate(self) -> dict[str, Any]:
        """Measures on held-out data. The first is the score by which the best checkpoint is chosen: more is better,
        less of one whose name ends in "loss"."""
        ...


@dataclass(frozen=True)
class Limits:
    """When training ends, and what happens on the way."""

    validate_every: int
    max_validations: int
    max_updates: int | None
    min_rate: float
    stop_after: int | None
    accumulate: int
    clip: float
    validation_decay: bool = True
    """Whether a fall of the score lowers the learning rate."""


@dataclass
class Progress:
    """Where a run stands. Saved with every checkpoint."""

    step: int = 0
    validated: int = 0
    """The update after which the newest validation took place."""
    seconds: float = 0.0
    scores: list[float] = field(default_factory=list)
    decay: float = 1.0


class Trainer:
    """Runs a task until one of its limits is reached."""

    def __init__(
        self,
        task: Task,
        schedule: Schedule,
        limits: Limits,
        folder: Path,
        console: Console,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.task, self.schedule, self.limits, self.folder, self.console = task, schedule, limits, folder, console
        self.optimizer = optimizer or torch.optim.Adam(parameter_groups(task.model, 0.0), lr=0.0)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.progress = Progress()

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint, if there is one."""
        newest = self.checkpoints.newest()
        if newest is None:
            return False
        state = self.checkpoints.restore(newest, self.task.model, self.optimizer)
        self.progress = Progress(**state["progress"])
        self.task.batches.load_state_dict(state["batches"])
        self._forget_metrics_after(self.progress.step)
        if self.progress.validated == self.progress.step and self._is_best():
            self.checkpoints.mark_best(newest)  # it may have been killed just before
        return True

    def train(self) -> Progress:
        """Train to the end. Ctrl-C saves and passes on."""
        stream = iter(self.task.batches)
        started = time.monotonic() - self.progress.seconds
        meter = _Meter()
        try:
            while not self._has_ended():
                if self._is_validation_due():
                    self._validate(meter)
                    meter = _Meter()
                else:
                    self._update(stream, meter)
                    if meter.is_due():
                        self._say(meter.line(self.progress, self._rate()))
                self.progress.seconds = time.monotonic() - started
        except KeyboardInterrupt:
            self._save()
            raise
        return self.progress

    def _update(self, stream: Iterator[Any], meter: _Meter) -> None:
        """One step of the optimiser over `accumulate` batches, each token weighing the same."""
        self.task.model.train()
        batches = [next(stream) for _ in range(self.limits.accumulate)]
        losses = [self.task.loss(batch) for batch in batches]
        tokens = sum(count for _, count in losses)
        loss = torch.stack([mean * (count / tokens) for mean, count in losses]).sum()
        if not math.isfinite(loss.item()):
            raise InputError(
                f"the loss is {loss.item()} at update {self.progress.step + 1}; the last good checkpoint is kept in "
                f"{self.checkpoints.folder}: try a lower training.peak or a longer training.warmup"
            )
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.task.model.parameters(), self.limits.clip)
        self.progress.step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        self.optimizer.step()
        meter.add(loss.item(), tokens)

    def _rate(self) -> float:
        return self.schedule.rate(self.progress.step) * self.progress.decay

    def _validate(self, meter: _Meter) -> None:
        self.task.model.eval()
        measures = self.task.validate()
        name, score = next(iter(measures.items()))
        self.progress.scores.append(-score if name.endswith("loss") else score)
        self.progress.validated = self.progress.step
        if self.limits.validation_decay:
            decay = ValidationDecay(self.progress.decay)
            decay.update(self.progress.scores, warmed_up=self.progress.step >= self.schedule.warmup)
            self.progress.decay = decay.factor
        self._write_metrics(meter, measures)
        checkpoint = self._save()
        if self._is_best():
            self.checkpoints.mark_best(checkpoint)
        self.checkpoints.remove_old(_CHECKPOINTS_KEPT)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in measures.items() if isinstance(value, float))
        self._say(f"{meter.line(self.progress, self._rate())}, {shown}")

    def _is_best(self) -> bool:
        scores = self.progress.scores
        return bool(scores) and scores[-1] >= max(scores)

    def _is_validation_due(self) -> bool:
        step = self.progress.step
        at_stop = step % self.limits.validate_every == 0 or step == self.limits.max_updates
        return at_stop and step != self.progress.validated

    def _has_ended(self) -> bool:
        """Only ever after a validation."""
        progress, scores, limits = self.progress, self.progress.scores, self.limits
        if progress.validated != progress.step or not scores:
            return False
        if progress.step == limits.max_updates or len(scores) >= limits.max_validations:
            return True
        if limits.stop_after is not None and len(scores) > limits.stop_after:
            return max(scores[-limits.stop_after :]) <= max(scores[: -limits.stop_after])
        return self.schedule.peak * progress.decay < limits.min_rate

    def _save(self) -> Path:
        state = {"progress": asdict(self.progress), "batches": self.task.batches.state_dict()}
        return self.checkpoints.save(self.progress.step, self.task.model, self.optimizer, state)

    def _write_metrics(self, meter: _Meter, measures: dict[str, Any]) -> None:
        line = {
            "step": self.progress.step,
            "seconds": round(self.progress.seconds, 2),
            "tokens_per_second": round(meter.tokens_per_second(), 1),
            "train_loss": meter.mean_loss(),
            "lr": self._rate(),
            "scales": {
                name.removesuffix(".q_norm.scale"): parameter.tolist()
                for name, parameter in self.task.model.named_parameters()
                if name.endswith("q_norm.scale")
            },
            **measures,
        }
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _forget_metrics_after(self, step: int) -> None:
        """Drop lines that a killed run wrote after its last checkpoint, a half-written one among them."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return
        kept = []
        for line in read_lines(path):
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
        with replacing(path) as file:
            file.writelines(line.encode() + b"\n" for line in kept)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


class _Meter:
    """Speed and loss since the last validation."""

    def __init__(self) -> None:
        self.began = self.last_line = time.monotonic()
        self.losses: list[float] = []
        self.tokens = 0

    def add(self, loss: float, tokens: int) -> None:
        self.losses.append(loss)
        self.tokens += tokens

    def mean_loss(self) -> float:
        return sum(self.losses) / max(len(self.losses), 1)

    def tokens_per_second(self) -> float:
        return self.tokens / max(time.monotonic() - self.began, 1e-9)

    def is_due(self) -> bool:
        if time.monotonic() - self.last_line < _SECONDS_BETWEEN_LINES:
            return False
        self.last_line = time.monotonic()
        return True

    def line(self, progress: Progress, rate: float) -> str:
        minutes = progress.seconds / 60
        return (
            f"{minutes:6.1f} min, update {progress.step:,}: loss {self.mean_loss():.3f}, lr {rate:.2e}, "
            f"{self.tokens_per_second():,.0f} tokens/s"
        )
