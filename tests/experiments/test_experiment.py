from __future__ import annotations

import json
from pathlib import Path

from qknorm.experiments.experiment import PLAN, Experiment
from tests.experiments.plans import planned


def test_the_plan_of_a_table_of_an_earlier_version_is_read() -> None:
    """It listed its runs by corpus, row, rate and seed."""
    now = planned("henry-table2", "medium", "multi30k-en-de", seeds=2, minutes=12).experiment
    entrants = [
        {
            "row": row,
            "candidates": [
                {"rate": rate, "runs": [f"multi30k-en-de/{row}_rate-{rate:g}_seed-{seed}" for seed in (1, 2)]}
                for rate in (0.000375, 0.00075, 0.0015)
            ],
        }
        for row in ("baseline", "qknorm")
    ]
    table = now.about.model_dump(mode="json", exclude={"shrunk"}) | {"shows": "bleu"}
    contests = [{"corpus": "multi30k-en-de", "pair": None, "entrants": entrants}]
    earlier = {"name": "henry-table2", "size": "medium", "minutes": 12.0, "table": table, "contests": contests}
    read = Experiment.of_text(json.dumps(earlier), "henry-table2.json")
    assert read.model_copy(update={"cells": now.cells}) == now.model_copy(update={"about": read.about})
    assert read.about.shrunk == now.about.shrunk
    assert sorted(read.cells, key=str) == sorted(now.cells, key=str)


def test_the_file_of_a_sweep_is_read_as_it_was_written(tmp_path: Path) -> None:
    cell = {"name": "p-2_fold-00", "settings": {"p": 2, "fold": 0}, "is_baseline": False}
    written = {"name": "mine", "about": {"title": "Mine", "shows": "p"}, "cells": [cell]}
    (tmp_path / PLAN).write_text(json.dumps(written))
    read = Experiment.of_file(tmp_path / PLAN)
    assert (read.task, read.about.title, read.cells[0].settings) == ("language", "Mine", {"p": 2, "fold": 0})
    read.keep_plan(tmp_path)
    assert Experiment.of_file(tmp_path / PLAN) == read
