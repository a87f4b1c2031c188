"""One training loop for every task, in one process or in several.

After an interruption the loop goes on from the last checkpoint as if nothing had happened: the checkpoint holds the
weights, the optimiser's memory, the random state, the position in the data and the history of scores.

Several processes, started by torchrun, learn what one with `accumulate` times their number learns: every token of an
update weighs the same. DistributedDataParallel sends gradients while the rest is still being computed, and takes their
mean over the processes, however many tokens each had. So each process goes backwards from the sum over its tokens, and
the mean over processes is turned into one over tokens once their number is known.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from qknorm import processes
from qknorm.errors import InputError
from qknorm.models.half import autocast, use_half_products
from qknorm.optimisation.schedules import Schedule, factor_after
from qknorm.runs.contents import Status
from qknorm.runs.recipe import Precision
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training.interruption import Interruption
from qknorm.training.loggers.table import check_installed
from qknorm.training.progress import ProgressReport
from qknorm.training.validation import Validation

_CHECKPOINTS_KEPT = 2
# What losses in fp16 are multiplied by at first. They are sums over tokens here, so it is less than torch's 65,536.
_FIRST_LOSS_SCALE = 64.0
# Processes draw different random numbers: their seeds lie this far apart.
_SEEDS_APART = 1000
# The time that is left is judged by about this many updates.
_UPDATES_REMEMBERED = 200


class Batches(Protocol):
    """An endless stream of batches whose position can be saved."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Task(Protocol):
    """What is trained: a model, its data, and how well it does. Nothing in it needs to know of other processes.

    Several processes call `loss` side by side, each with batches of its own; `validate` is called in the first alone.
    """

    @property
    def model(self) -> nn.Module: ...

    @property
    def batches(self) -> Batches: ...

    def loss(self, batch: Any) -> tuple[Tensor, int]:
        """The mean loss of a batch, and over how many tokens it is the mean."""
        ...

    def validate(self) -> Validation:
        """How well the model does on held-out data."""
        ...

    def ends_after(self, updates: int) -> None:
        """The run is now planned to end after so many updates: sooner than it was."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """What a trainer is told by a recipe: when it validates and ends, and how it makes an update."""

    validate_every: int
    max_validations: int
    max_updates: int | None = None
    min_rate: float = 0.0
    """Training ends when falling scores have lowered the highest learning rate below this."""
    stop_after: int | None = None
    """Training ends when this many validations in a row brought no better score; a planned decay then begins."""
    accumulate: int = 1
    """Batches of an update, in each process."""
    clip: float
    """The largest norm of a gradient."""
    validation_decay: bool = True
    """Whether a fall of the score lowers the learning rate."""
    precision: Precision = "float32"
    average: int = 1
    """At the end the mean of this many checkpoints, those of the last validations, is the best if it scores best."""
    loggers: tuple[str, ...] = ()
    """Names of the table of loggers."""

    def __post_init__(self) -> None:
        if self.precision == "fp16" and processes.device().type == "cpu":
            raise InputError("training.precision=fp16 needs a GPU; on a CPU choose bf16 or float32")
        check_installed(self.loggers)

    @property
    def most_updates(self) -> int:
        """There are never more updates than this."""
        return min(self.max_updates or sys.maxsize, self.max_validations * self.validate_every)


@dataclass
class Progress:
    """Where a run stands. Saved with every checkpoint, and the same in all processes but for the seconds."""

    step: int = 0
    validated: int = 0
    """The update after which the newest validation took place."""
    seconds: float = 0.0
    scores: list[float] = field(default_factory=list)
    decay: float = 1.0
    loss_since_validation: float = 0.0
    """The sum of the updates' losses."""
    updates_since_validation: int = 0
    shortened: tuple[int, int] | None = None
    """A planned number of updates, and the smaller one that took its place when scores rose no more."""
    patience_from: int = 0
    """How many scores there were when the run was prolonged: those before it end nothing."""


class Trainer:
    """Runs a task until one of its limits is reached."""

    def __init__(
        self,
        task: Task,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        settings: TrainerSettings,
        folder: Path,
        console: Screen,
    ) -> None:
        self.task, self.optimizer, self.schedule, self.settings = task, optimizer, schedule, settings
        run = Run(folder)
        self.checkpoints = run.checkpoints
        self.progress = Progress()
        self.clock = _Clock(self.progress)
        self.interruption = Interruption()
        is_first = processes.rank() == 0
        self.report = ProgressReport(run, console, settings.loggers if is_first else ())
        self.device = next(task.model.parameters()).device
        self.scaler = torch.amp.GradScaler(
            self.device.type, init_scale=_FIRST_LOSS_SCALE, enabled=settings.precision == "fp16"
        )
        if settings.precision == "bf16" and self.device.type == "cpu":
            use_half_products(task.model)
        self.loss: nn.Module = _Loss(task)
        if processes.count() > 1:
            self.loss = DistributedDataParallel(self.loss)
        if not is_first:
            torch.manual_seed(torch.initial_seed() + _SEEDS_APART * processes.rank())

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint, if there is one, and say where the run goes on."""
        newest = processes.from_first(self.checkpoints.newest)
        if newest is None:
            if processes.rank() == 0:
                self.report.forget_after(0)
            self.report.say(f"{self.report.run.folder} has no whole checkpoint: it starts from the beginning")
            return False
        state = self.checkpoints.restore(newest, self.task.model, self.optimizer)
        self.progress = Progress(**state["progress"])
        if self.progress.shortened is not None and self.progress.shortened[0] == self.schedule.total:
            self._end_after(self.progress.shortened[1])
        self.task.batches.load_state_dict(state["batches"])
        self.scaler.load_state_dict(state["scaler"])
        if processes.rank() == 0:
            self.report.forget_after(self.progress.validated)
            if self.progress.validated == self.progress.step:
                self._mark(newest)  # it may have been killed just before
        if 0 < self.progress.patience_from == len(self.progress.scores):
            self._save()  # it has just been prolonged, and may have grown: all that is saved now is of one size
        self.report.say(f"going on after update {self.progress.step:,}")
        return True

    def train(self) -> Progress:
        """Train to the end. Ctrl-C saves, says how to go on, and passes on."""
        stream = iter(self.task.batches)
        self.clock = _Clock(self.progress)
        with self.report, self.interruption:
            try:
                while not self._has_ended():
                    if self._is_validation_due():
                        self._validate()
                    else:
                        self.update(stream)
            except KeyboardInterrupt:
                self._save()
                command = processes.command_to_resume(self.report.run.folder, processes.count())
                self.report.say(f"\nSaved after update {self.progress.step:,}. Go on with: {command}")
                raise
        if self.settings.average > 1 and processes.rank() == 0:
            self._try_average()
        return self.progress

    def update(self, stream: Iterator[Any]) -> None:
        """One step of the optimiser over `accumulate` batches of each process, each token weighing the same."""
        self.task.model.train()
        self.optimizer.zero_grad()
        tokens, total = 0, torch.zeros((), dtype=torch.float64, device=self.device)
        for left in reversed(range(self.settings.accumulate)):
            with self._apart() if left else contextlib.nullcontext():
                mean, count = self._loss(next(stream))
                torch.autograd.backward(self.scaler.scale(mean * count))
            tokens += count
            total += mean.detach() * count
        total_loss, total_tokens, interruptions = processes.summed(total, tokens, self.interruption.requested)
        self._step(total_loss / total_tokens, processes.count() / total_tokens)
        self.clock.tick(int(total_tokens))
        self.report.updated(self._status())
        if interruptions:
            raise KeyboardInterrupt

    def _loss(self, batch: Any) -> tuple[Tensor, int]:
        with autocast(self.device, self.settings.precision):
            loss: tuple[Tensor, int] = self.loss(batch)
        return loss

    def _apart(self) -> contextlib.AbstractContextManager[None]:
        """Within it gradients stay in their process: they are sent once per update."""
        return self.loss.no_sync() if isinstance(self.loss, DistributedDataParallel) else contextlib.nullcontext()

    def _step(self, loss: float, factor: float) -> None:
        """Turn the gradients, once multiplied by `factor`, into a change of the weights."""
        self.scaler.unscale_(self.optimizer)
        parameters = [parameter for parameter in self.task.model.parameters() if parameter.grad is not None]
        torch._foreach_mul_([parameter.grad for parameter in parameters if parameter.grad is not None], factor)
        norm = nn.utils.clip_grad_norm_(parameters, self.settings.clip).item()
        # In fp16 gradients overflow now and then; the scaler leaves such an update out and lowers its factor.
        if not math.isfinite(loss) or not (math.isfinite(norm) or self.scaler.is_enabled()):
            what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
            has_saved = any(self.checkpoints.folder.glob("step-*"))
            kept = f"the last good checkpoint is kept in {self.checkpoints.folder}"
            raise InputError(
                f"{what} at update {self.progress.step + 1}; {kept if has_saved else 'there is no checkpoint yet'}: "
                "try a lower training.peak or a longer training.warmup"
            )
        self.progress.step += 1
        self.progress.loss_since_validation += loss
        self.progress.updates_since_validation += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _rate(self) -> float:
        return self.schedule.rate(self.progress.step) * self.progress.decay

    def _validate(self) -> None:
        self.task.model.eval()
        speed = self.clock.tokens_per_second()  # of training alone

        def validate() -> Validation:
            with self.interruption.at_once():
                return self.task.validate()

        validation = processes.from_first(validate)
        progress = self.progress
        progress.scores.append(validation.score)
        progress.validated = progress.step
        self._shorten_if_scores_rise_no_more()
        if self.settings.validation_decay and progress.step >= self.schedule.warmup:
            progress.decay *= factor_after(progress.scores)
        self.clock.tick(0)
        if processes.rank() == 0:
            self.report.validated(
                self._status().model_copy(update={"tokens_per_second": speed}), validation, self.task.model
            )
        progress.loss_since_validation, progress.updates_since_validation = 0.0, 0
        self.clock.restart()
        checkpoint = self._save()
        if processes.rank() == 0:
            self._mark(checkpoint)
            self.checkpoints.remove_all_but(self._steps_kept(max(_CHECKPOINTS_KEPT, self.settings.average)))

    def _mark(self, checkpoint: Path) -> None:
        """Point at the newest validated checkpoint if it is the best so far, or where the decay begins."""
        if self.progress.scores[-1] >= self.checkpoints.best_score():
            self.checkpoints.mark_best(checkpoint)
        if self.progress.step == self.schedule.decay_start:
            self.checkpoints.mark_stable(checkpoint)

    def _shorten_if_scores_rise_no_more(self) -> None:
        """A flat learning rate that brings nothing any more falls from here on; the run then ends sooner."""
        step, planned, start = self.progress.step, self.schedule.total, self.schedule.decay_start
        if start is not None and step < start and self._has_stalled():
            self._end_after(step + self.schedule.decay)
            self.progress.shortened = (planned, self.schedule.total)
            self.report.say(
                f"The score has not risen for {self.settings.stop_after} validations: the learning rate falls from "
                f"here on, and the run ends after {self.schedule.total:,} updates instead of {planned:,}."
            )

    def _end_after(self, updates: int) -> None:
        self.schedule = replace(self.schedule, total=updates)
        self.task.ends_after(updates)

    def _has_stalled(self) -> bool:
        scores, patience = self.progress.scores, self.settings.stop_after
        if patience is None or len(scores) - max(self.progress.patience_from, 1) < patience:
            return False
        return max(scores[-patience:]) <= max(scores[:-patience])

    def _try_average(self) -> None:
        """Validate the mean of the last checkpoints' weights, and prefer it if it scores better."""
        steps = self._steps_kept(self.settings.average)
        weights = self.checkpoints.average(steps)
        self.task.model.load_state_dict(weights)
        self.task.model.eval()
        self.report.say(f"The mean of the last {len(steps)} checkpoints' weights:")
        score, best = self.task.validate().score, self.checkpoints.best_score()
        if score > best:
            self.checkpoints.save_best_average(weights, steps, score)
        verdict = "it is kept" if score > best else "it is not kept"
        self.report.say(f"  scores {score:.2f} on dev, the best so far {best:.2f}: {verdict}")

    def _status(self) -> Status:
        progress, most = self.progress, min(self.settings.most_updates, self._last_update or sys.maxsize)
        return Status(
            step=progress.step,
            most_steps=most,
            seconds=progress.seconds,
            tokens_per_second=self.clock.tokens_per_second(),
            train_loss=progress.loss_since_validation / max(progress.updates_since_validation, 1),
            lr=self._rate(),
            seconds_left=(most - progress.step) * self.clock.seconds_per_update(),
        )

    @property
    def _last_update(self) -> int | None:
        """Where the run ends unless its scores end it: as planned, or sooner if the plan was shortened."""
        return self.settings.max_updates if self.progress.shortened is None else self.schedule.total

    def _is_validation_due(self) -> bool:
        step = self.progress.step
        at_stop = step % self.settings.validate_every == 0 or step in (self._last_update, self.schedule.decay_start)
        return at_stop and step != self.progress.validated

    def _has_ended(self) -> bool:
        """Only ever after a validation."""
        progress, scores, settings = self.progress, self.progress.scores, self.settings
        if progress.validated != progress.step or not scores:
            return False
        if progress.step == self._last_update:
            return True
        has_no_decay = self.schedule.decay_start is None
        if has_no_decay and len(scores) >= settings.max_validations:
            return True
        if has_no_decay and self._has_stalled():
            self.report.say(f"The score has not risen for {settings.stop_after} validations: the run ends here.")
            return True
        if settings.validation_decay and self.schedule.peak * progress.decay < settings.min_rate:
            self.report.say(f"The learning rate would be below {settings.min_rate:g}, its least: the run ends here.")
            return True
        return False

    def _steps_kept(self, number: int) -> list[int]:
        """The steps of the newest validations, this one among them."""
        step, every = self.progress.step, self.settings.validate_every
        return [step, *range((step - 1) // every * every, 0, -every)][:number]

    def _save(self) -> Path:
        state = {
            "progress": asdict(self.progress),
            "batches": self.task.batches.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        return self.checkpoints.save(self.progress.step, self.task.model, self.optimizer, state)


class _Loss(nn.Module):
    """The task's loss as a module: DistributedDataParallel acts on the forward pass of the module that it wraps."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.model, self._task = task.model, task

    def forward(self, batch: Any) -> tuple[Tensor, int]:
        return self._task.loss(batch)


class _Clock:
    """Speed since the last validation, and of the last updates: a machine may become slower in the middle of a run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._session_began = self._last_tick = time.monotonic()
        self._seconds_before = progress.seconds
        self._updates, self._seconds_per_update = 0, 0.0
        self.restart()

    def restart(self) -> None:
        """Measure speed anew from here."""
        self._began, self._tokens = time.monotonic(), 0

    def tick(self, tokens: int) -> None:
        """Some more tokens were learned in one update; a validation counts with the update after it."""
        now = time.monotonic()
        if tokens:
            self._updates += 1
            weight = 1 / min(self._updates, _UPDATES_REMEMBERED)
            self._seconds_per_update += weight * (now - self._last_tick - self._seconds_per_update)
            self._last_tick = now
        self._tokens += tokens
        self._progress.seconds = self._seconds_before + now - self._session_began

    def tokens_per_second(self) -> float:
        return self._tokens / max(time.monotonic() - self._began, 1e-9)

    def seconds_per_update(self) -> float:
        """Of the last updates, validations among them included."""
        return self._seconds_per_update
