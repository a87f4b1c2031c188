from __future__ import annotations

import csv
import json
from pathlib import Path

from qknorm.experiments.page import setting
from qknorm.experiments.views.table import summarise
from tests.experiments.plans import planned


def test_an_answer_comes_in_every_form(own: str, talks: str, tmp_path: Path) -> None:
    experiment = planned(own, "smoke", talks).experiment
    summarise(experiment, tmp_path)
    path = experiment.page(tmp_path)
    assert path.name == "own_talks.md"
    page = path.read_text()
    for part in (
        "**Question.** Is a larger p better?",
        "**Setting.** SMOKE SIZE",
        "**Result.** Nothing is compared: no",
    ):
        assert part in page
    with path.with_suffix(".csv").open() as file:
        assert [row["paper"] for row in csv.DictReader(file)] == ["", "20.0"]
    tex = path.with_suffix(".tex").read_text()
    assert r"p = 3 \& more & 20.00 & not run" in tex
    assert "SMOKE SIZE" in tex
    assert tex.count("rule\n") == 3
    assert json.loads(path.with_suffix(".json").read_text())["plan"]["name"] == "own"
    assert "learning-rates.png" not in page, "nothing was trained at several rates"
    assert not path.with_name("references.bib").exists(), "it names no paper"


def test_one_rate_for_all_rows_is_told_as_such(talks: str) -> None:
    assert setting(planned("henry-table4", "medium", talks).experiment)[-1] == (
        "The learning rate of every row rises to 0.00075."
    )
    assert (
        "at the learning rates 0.00075, 0.0015, and" in setting(planned("henry-table6", "medium", talks).experiment)[-1]
    )
