from __future__ import annotations

import csv
import json
from pathlib import Path

from qknorm.experiments.papers.output import write
from qknorm.experiments.papers.views import view
from tests.experiments.papers.plans import planned


def test_a_table_comes_in_every_form(own: str, talks: str, tmp_path: Path) -> None:
    plan = planned(own, "smoke", talks)
    path = write(plan, view(plan.experiment, tmp_path), tmp_path)
    assert path.name == "own_talks.md"
    page = path.read_text()
    for part in ("**Question.** Is a larger p better?", "**Setting.** SMOKE SIZE", "**Result.** Nothing can be"):
        assert part in page
    with path.with_suffix(".csv").open() as file:
        assert [row["paper"] for row in csv.DictReader(file)] == ["", "20.0"]
    tex = path.with_suffix(".tex").read_text()
    assert r"p = 3 \& more & 20.00 & not run" in tex
    assert "SMOKE SIZE" in tex
    assert tex.count("rule\n") == 3
    assert json.loads(path.with_suffix(".json").read_text())["plan"]["name"] == "own"
