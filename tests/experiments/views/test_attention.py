from __future__ import annotations

from pathlib import Path

import torch
from matplotlib import pyplot as plt

from qknorm.experiments.views.attention import KINDS, Course, course, first_crossing, over_training
from tests.contents import validation, write_metrics


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


def test_the_course_of_a_system_has_the_heads_of_all_its_runs_for_each_kind_of_attention(tmp_path: Path) -> None:
    for run, more in (("first", 0.0), ("second", 0.2)):
        heads = {
            "encoder.0.attention": [0.1 + more, 0.2], "encoder.1.attention": [0.3, 0.4],
            "decoder.0.attention": [0.9, 0.9], "decoder.0.source_attention": [0.5, 0.5 + more],
        }  # fmt: skip
        (tmp_path / run).mkdir()
        watched = [validation(step, entropy=heads) for step in ((20, 30) if more else (20,))]
        write_metrics(tmp_path / run, validation(10), *watched)
    runs = [tmp_path / "first", tmp_path / "second"]
    found = {kind: course(runs, kind) for kind in KINDS}
    assert {tuple(course.updates) for course in found.values()} == {(20,)}, "where all runs were watched"
    expected = {
        "encoder": [[[0.1, 0.2, 0.3, 0.2], [0.3, 0.4, 0.3, 0.4]]],
        "decoder": [[[0.9, 0.9, 0.9, 0.9]]], "decoder, at the source": [[[0.5, 0.5, 0.5, 0.7]]],
    }  # fmt: skip
    for kind, heads_of_kind in expected.items():
        torch.testing.assert_close(found[kind].entropies, torch.tensor(heads_of_kind))


def test_a_run_that_was_not_watched_has_an_empty_course(tmp_path: Path) -> None:
    write_metrics(tmp_path, validation())
    assert course([tmp_path], "encoder").updates == []


def test_every_head_has_its_curve() -> None:
    both = {"baseline": constant(0.9, 0.4), "QKNorm": constant(0.9, 0.7)}
    figure = over_training({"encoder": both, "decoder": both})
    assert [axis.get_title() for axis in figure.axes] == ["baseline", "QKNorm", "", ""]
    assert [len(axis.lines) for axis in figure.axes] == [2 * 4 + 1] * 4
    plt.close(figure)
