"""The training loop with a task so small that every update can be followed."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from qknorm.errors import InputError
from qknorm.optimisation.optimisers import OPTIMISERS
from qknorm.optimisation.schedules import Schedule, Trapezoid, WarmupFlat
from qknorm.runs import checkpoint
from qknorm.runs.checkpoint import Checkpoints
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training import progress as progress_module
from qknorm.training.validation import Validation
from tests.training.toy import Counting, Toy, scored, trainer


def steps(folder: Path) -> list[int]:
    return [line.step for line in Run(folder).metrics()]


def bits(folder: Path, step: int) -> list[bytes]:
    """Of the weights and the optimiser's memory after an update."""
    checkpoint = folder / "checkpoints" / f"step-{step:06d}"
    return [(checkpoint / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


def test_every_token_weighs_the_same(tmp_path: Path) -> None:
    """Batches of 1, 2 and 3 tokens in one update give the gradient of the mean over 6."""
    task = Toy(noise=0.0)
    loop = trainer(tmp_path, task, accumulate=3)
    stream = iter(Counting())
    tokens = torch.cat([next(stream) for _ in range(3)])
    expected = torch.autograd.grad(
        (task.model(tokens) - tokens.sum(1, keepdim=True)).square().mean(), list(task.model.parameters())
    )
    loop.update(iter(task.batches))
    for parameter, gradient in zip(task.model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_gradients_are_clipped_after_they_are_weighed(tmp_path: Path) -> None:
    task = Toy()
    loop = trainer(tmp_path, task, clip=0.01)
    loop.update(iter(task.batches))
    norm = torch.cat([parameter.grad.flatten() for parameter in task.model.parameters() if parameter.grad is not None])
    assert norm.norm().item() == pytest.approx(0.01, rel=1e-3)


def test_training_ends_at_the_first_limit(tmp_path: Path) -> None:
    assert trainer(tmp_path / "a", max_updates=10).train().step == 10
    assert steps(tmp_path / "a") == [4, 8, 10]
    assert trainer(tmp_path / "b", max_updates=None, max_validations=2).train().step == 8


def test_a_validation_where_the_decay_begins_does_not_cut_the_decay_short(tmp_path: Path) -> None:
    """It is one more than every four updates, and the run could not go on from there."""
    schedule = Trapezoid(0.01, 0, 12, decay=6)
    assert trainer(tmp_path, schedule=schedule, max_updates=12, max_validations=3).train().step == 12
    assert steps(tmp_path) == [4, 6, 8, 12]


def test_training_ends_when_scores_rise_no_more(tmp_path: Path) -> None:
    task = Toy(scores={1: 5.0, 2: 9.0, 3: 8.0, 4: 9.0})
    assert trainer(tmp_path, task, max_updates=None, stop_after=2).train().step == 16
    assert (tmp_path / "checkpoints" / "best").read_text() == "step-000016\n"


def test_the_rate_decays_with_the_scores_and_training_ends_below_the_least_rate(tmp_path: Path) -> None:
    """Each score is below the three before it, from the fourth on: × 0.8 until 0.01 has become less than 0.006."""
    task = Toy(scores={number: -float(number) for number in range(1, 50)})
    progress = trainer(tmp_path, task, max_updates=None, min_rate=0.006).train()
    assert progress.step == 4 * (3 + 3)
    assert progress.decay == pytest.approx(0.8**3)
    rates = [line.lr for line in Run(tmp_path).metrics()]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.008, 0.0064, 0.00512])
    assert trainer(tmp_path / "no", task, max_updates=24, validation_decay=False).train().decay == 1.0
    warming = trainer(tmp_path / "warming", task, WarmupFlat(0.01, warmup=100), max_updates=24)
    assert warming.train().decay == 1.0


def trapezoid(total: int, decay: int) -> Schedule:
    return Trapezoid(0.01, warmup=2, total=total, decay=decay)


def rewound(folder: Path) -> Checkpoints:
    """As before another plan begins where the learning rate fell."""
    checkpoints = Checkpoints(folder / "checkpoints")
    stable = checkpoints.stable()
    assert stable is not None
    checkpoints.rewind(stable)
    assert checkpoints.newest() == stable
    return checkpoints


class ByStep(Toy):
    """Scores by the number of batches seen, so that a run that goes on gets those of one that never stopped."""

    def validate(self) -> Validation:
        return scored(self.scores.get(self.batches.drawn, float(self.batches.drawn)))


def test_a_prolonged_run_is_the_longer_run_that_was_never_planned_shorter(tmp_path: Path) -> None:
    """From the checkpoint at which the decay began: the same weights, bit for bit, and the same metrics."""
    trainer(tmp_path / "long", ByStep(), trapezoid(22, 8), max_updates=22).train()
    run = tmp_path / "run"
    trainer(run, ByStep(scores={12: 99.0}), trapezoid(16, 6), max_updates=16).train()
    assert steps(run) == [4, 8, 10, 12, 16]
    rewound(run)
    loop = trainer(run, ByStep(), trapezoid(22, 8), max_updates=22)
    assert loop.resume()
    assert loop.progress.step == 10
    loop.train()
    assert bits(run, 22) == bits(tmp_path / "long", 22)
    assert steps(run) == [4, 8, 10, 12, 14, 16, 20, 22]


def test_a_shortened_run_is_prolonged_to_where_it_was_to_end_at_first(tmp_path: Path) -> None:
    """That the first plan was cut short says nothing about the second, even if both end after as many updates."""
    trainer(tmp_path, ByStep(scores={8: 0.0, 12: 0.0}), trapezoid(32, 8), max_updates=32, stop_after=2).train()
    assert steps(tmp_path)[-1] == 20
    rewound(tmp_path)
    loop = trainer(tmp_path, ByStep(scores={16: 0.0}), trapezoid(32, 8), max_updates=32, stop_after=2)
    assert loop.resume()
    assert loop.progress.step == 12
    loop.train()
    assert steps(tmp_path)[-1] == 32, "nor do the scores from before, which had not risen"


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_resumed_run_goes_on_exactly_with_every_optimiser(optimiser: str, tmp_path: Path) -> None:
    trainer(tmp_path / "whole", ByStep(), optimiser=optimiser).train()
    trainer(tmp_path / "run", ByStep(), optimiser=optimiser, max_updates=8).train()
    loop = trainer(tmp_path / "run", ByStep(), optimiser=optimiser)
    assert loop.resume()
    loop.train()
    assert bits(tmp_path / "run", 12) == bits(tmp_path / "whole", 12)


def test_the_best_from_before_stays_in_use_until_a_better_one_comes(tmp_path: Path) -> None:
    trainer(tmp_path, ByStep(scores={12: 15.0, 16: 1.0}), trapezoid(16, 6), max_updates=16).train()
    kept, _ = bits(tmp_path, 12)
    checkpoints = rewound(tmp_path)
    best = checkpoints.load_best(Toy().model)
    assert best is not None
    assert (best / "model.safetensors").read_bytes() == kept
    assert checkpoints.best_score() == 15.0
    loop = trainer(tmp_path, ByStep(scores={12: 14.0}), trapezoid(24, 6), max_updates=24)
    assert loop.resume()
    loop.train()
    assert checkpoints.load_best(Toy().model) == tmp_path / "checkpoints" / "step-000024"
    assert not (tmp_path / "checkpoints" / "before").exists()


def test_a_flat_rate_that_brings_nothing_falls_sooner(tmp_path: Path) -> None:
    """Scores rise until update 8; two validations later the decay of 6 updates begins, and a resumed run knows it."""
    scores = dict.fromkeys(range(12, 40), 5.0)
    settings: dict[str, Any] = {"max_updates": 40, "stop_after": 2}
    printed = io.StringIO()
    console = Screen(file=printed, width=200)
    progress = trainer(tmp_path, ByStep(scores), trapezoid(40, 6), console, **settings).train()
    assert progress.step == 16 + 6
    assert progress.shortened == (40, 22)
    assert "The score has not risen for 2 validations" in printed.getvalue()
    assert "ends after 22 updates instead of 40" in printed.getvalue()
    rates = [line.lr for line in Run(tmp_path).metrics()]
    assert rates[:4] == pytest.approx([0.01] * 4)
    assert rates[-1] == pytest.approx(0.01 / 7)
    assert Checkpoints(tmp_path / "checkpoints").stable() == tmp_path / "checkpoints" / "step-000016"
    again = trainer(tmp_path, ByStep(scores), trapezoid(40, 6), **settings)
    assert again.resume()
    assert again.train().step == 22


def test_a_low_peak_ends_only_what_lowers_its_rate_by_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer(
        tmp_path / "planned", ByStep(), trapezoid(16, 6), max_updates=16, min_rate=1.0, validation_decay=False
    ).train()
    assert steps(tmp_path / "planned")[-1] == 16
    trainer(tmp_path / "by scores", ByStep(), min_rate=1.0, console=Screen()).train()
    assert steps(tmp_path / "by scores") == [4]
    assert "The learning rate would be below 1, its least: the run ends here." in capsys.readouterr().out


@pytest.mark.parametrize(("score", "best"), [(99.0, "average"), (1.0, "step-000012")])
def test_the_mean_of_the_last_weights_is_used_if_it_scores_better(
    score: float, best: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Toy(scores={4: score})  # the fourth validation is that of the mean
    trainer(tmp_path, task, average=2, console=Screen()).train()
    assert f"scores {score:.2f} on dev, the best so far 3.00" in capsys.readouterr().out
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.load_best(Toy().model) == tmp_path / "checkpoints" / best
    assert checkpoints.best_score() == max(score, 3.0)


def test_a_run_whose_best_weights_are_a_mean_can_be_resumed(tmp_path: Path) -> None:
    """It may be killed while it translates the test set, and then comes to its end once more."""
    for attempt in range(3):
        loop = trainer(tmp_path, Toy(scores={4 if attempt == 0 else 1: 99.0}), average=2)
        assert loop.resume() == (attempt > 0)
        loop.train()
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        assert checkpoints.load_best(Toy().model) == tmp_path / "checkpoints" / "average"
        assert checkpoints.best_score() == 99.0


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_ends_a_run_unless_it_is_ignored(is_ignored: bool, tmp_path: Path) -> None:
    """Ignored as by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        loop = trainer(tmp_path)
        update = loop.update

        def close_terminal_and_update(stream: Iterator[Any]) -> None:
            if loop.progress.step == 5:
                os.kill(os.getpid(), signal.SIGHUP)
            update(stream)

        loop.update = close_terminal_and_update  # type: ignore[method-assign]
        with contextlib.nullcontext() if is_ignored else pytest.raises(KeyboardInterrupt):
            loop.train()
        assert loop.progress.step == (12 if is_ignored else 6)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("bad", "kept"), [(2, False), (7, True)])
def test_a_loss_that_is_not_finite_never_reaches_the_weights(bad: int, kept: bool, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        trainer(tmp_path, Toy(bad=bad)).train()
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    where = f"the last good checkpoint is kept in {checkpoints.folder}" if kept else "there is no checkpoint yet"
    assert str(caught.value) == (
        f"the loss is nan at update {bad}; {where}: try a lower training.peak or a longer training.warmup"
    )
    good = Toy()
    assert checkpoints.load_best(good.model) == (checkpoints.folder / "step-000004" if kept else None)
    assert all(parameter.isfinite().all() for parameter in good.model.parameters())


def test_a_gradient_that_is_not_finite_never_reaches_the_weights(tmp_path: Path) -> None:
    task = Toy()
    task.model.weight.register_hook(lambda gradient: gradient * (math.inf if task.batches.drawn == 4 else 1.0))
    with pytest.raises(InputError, match=r"the gradient's norm is (inf|nan) at update 4"):
        trainer(tmp_path, task).train()
    assert task.model.weight.isfinite().all()


@pytest.mark.parametrize("writes", range(5))
def test_a_full_disk_keeps_the_checkpoint_before(writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After whichever file, the run ends with an error of the system, and goes on when there is room.

    They are the three of the next checkpoint, `last` and `best`.
    """
    trainer(tmp_path / "whole").train()
    run, synced = tmp_path / "run", os.fsync
    trainer(run, max_updates=4).train()
    before, left = bits(run, 4), iter(range(writes))

    def full(file: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(file)

    loop = trainer(run)
    assert loop.resume()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((InputError, OSError), match=r"full|No space"):
            loop.train()
    assert bits(run, 4) == before
    assert not list((run / "checkpoints").glob(".saving-*"))

    with Run(run).metrics_file.open("a") as file:
        file.write('{"step": 8, "sec')
    (run / "checkpoints" / ".saving-xyz").mkdir()  # as a kill would leave it
    loop = trainer(run)
    assert loop.resume()
    loop.train()
    assert not (run / "checkpoints" / ".saving-xyz").exists()
    assert steps(run) == [4, 8, 12]
    assert bits(run, 12) == bits(tmp_path / "whole", 12)


def test_what_safetensors_says_of_a_full_disk_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises((InputError, OSError), match=r"full|No space"):
        trainer(tmp_path).train()


def test_a_person_sees_a_bar_and_a_file_gets_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LINES", 0.0)
    facts = r"loss \d+\.\d+, lr 1\.00e-02, [\d,]+ tokens/s, at most \d+ seconds? left"
    for terminal in (True, False):
        printed = io.StringIO()
        console = Screen(file=printed, force_terminal=terminal, width=160, color_system=None)
        trainer(tmp_path / str(terminal), console=console).train()
        text = printed.getvalue()
        assert ("━" in text) == terminal
        assert len(re.findall(rf"update \d+ of 12: {facts}", text)) == (3 if terminal else 3 + 12)
        assert len(re.findall(r"dev_bleu \d", text)) == 3
        if terminal:
            assert re.findall(rf"12/12 ━+ {facts}", text)


def test_checkpoints_of_interruptions_do_not_push_out_those_of_validations(tmp_path: Path) -> None:
    loop = trainer(tmp_path, average=3, max_updates=12)
    loop.interruption.requested = True
    with pytest.raises(KeyboardInterrupt):
        loop.train()
    assert steps_saved(tmp_path) == [1]
    loop = trainer(tmp_path, average=3, max_updates=12)
    assert loop.resume()
    loop.train()
    assert steps_saved(tmp_path) == [4, 8, 12]


def steps_saved(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*"))


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_kill_before_a_checkpoint_leaves_no_line_behind(is_interrupted: bool, tmp_path: Path) -> None:
    """Before the first, or in the validation after an interruption, which has saved one."""
    if is_interrupted:
        loop = trainer(tmp_path)
        loop.task.validate = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            loop.train()
    loop = trainer(tmp_path)
    assert loop.resume() == is_interrupted
    loop.checkpoints.save = killed  # type: ignore[assignment, method-assign]
    with pytest.raises(SystemExit):
        loop.train()
    assert steps(tmp_path) == [4]
    loop = trainer(tmp_path)
    assert loop.resume() == is_interrupted
    loop.train()
    assert steps(tmp_path) == [4, 8, 12]


def killed(*_: object) -> Path:
    raise SystemExit


def interrupted() -> Validation:
    raise KeyboardInterrupt
