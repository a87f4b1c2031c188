from __future__ import annotations

import json
from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines
from tests.training.toy import trainer


def test_tensorboard_gets_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer(tmp_path, max_updates=8, loggers=("tensorboard",)).train()
    loop = trainer(tmp_path, loggers=("tensorboard",))
    assert loop.resume()
    loop.train()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("dev_bleu")] == [4, 8, 12]
    losses = [json.loads(line)["train_loss"] for line in read_lines(tmp_path / "metrics.jsonl")]
    assert [event.value for event in events.Scalars("train_loss")] == pytest.approx(losses)
