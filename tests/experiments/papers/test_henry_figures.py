from __future__ import annotations

import json
from pathlib import Path

import torch
from matplotlib import pyplot as plt

from qknorm.experiments.papers.henry_figures import Course, course, first_crossing, over_training


def constant(*means: float) -> Course:
    """All heads alike, at updates 100, 200, …"""
    updates = [100 * (number + 1) for number in range(len(means))]
    return Course(updates, torch.tensor(means)[:, None, None].expand(-1, 2, 4))


def test_heads_are_sharper_from_the_update_after_which_they_stay_so() -> None:
    falling = constant(0.9, 0.4, 0.8, 0.3, 0.2)
    assert first_crossing(falling, constant(0.5, 0.5, 0.5, 0.5, 0.5)) == 400
    assert first_crossing(falling, constant(1.0, 1.0, 1.0, 1.0, 1.0)) == 100
    assert first_crossing(falling, constant(0.1, 0.1, 0.1, 0.1, 0.1)) is None
    assert first_crossing(falling, constant(0.5, 0.5)) == 200, "where both were watched"


def test_the_course_of_a_run_is_that_of_its_encoder(tmp_path: Path) -> None:
    heads = {"encoder.0.attention": [0.1, 0.2], "encoder.1.attention": [0.3, 0.4], "decoder.0.attention": [0.9, 0.9]}
    lines = [{"step": 10}, {"step": 20, "entropy": heads}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = course(tmp_path)
    assert found.updates == [20]
    assert found.entropies.tolist() == torch.tensor([[[0.1, 0.2], [0.3, 0.4]]]).tolist()


def test_every_head_has_its_curve() -> None:
    figure = over_training({"baseline": constant(0.9, 0.4), "QKNorm": constant(0.9, 0.7)})
    assert [axis.get_title() for axis in figure.axes] == ["baseline", "QKNorm"]
    assert [len(axis.lines) for axis in figure.axes] == [2 * 4 + 1] * 2
    plt.close(figure)
