from __future__ import annotations

import csv
import json
from pathlib import Path

from qknorm.experiments.machines import Machines
from qknorm.experiments.papers import plan as planning
from qknorm.experiments.papers.output import setting, write
from qknorm.experiments.papers.table import load_table
from qknorm.experiments.papers.views import view
from qknorm.runs.run import Run
from qknorm.screen import Screen
from tests.contents import translated
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
    assert "learning-rates.png" not in path.read_text(), "nothing was trained at several rates"


def test_one_rate_for_all_rows_is_told_as_such(talks: str) -> None:
    assert setting(planned("henry-table4", "medium", talks).experiment)[-1] == (
        "The learning rate of every row rises to 0.00075."
    )
    assert (
        "at the learning rates 0.00075, 0.0015, and" in setting(planned("henry-table6", "medium", talks).experiment)[-1]
    )


def test_table_1_at_several_rates_counts_all_hours_and_says_where_the_best_was(talks: str, tmp_path: Path) -> None:
    table = load_table("henry-table1").model_copy(update={"rates": (0.002, 0.004)})
    plan = planning.plan(table, "henry-table1", "smoke", talks, seeds=1)
    assert Machines(jobs=1).run_missing("test", plan.runs(tmp_path), tmp_path, Screen(quiet=True)) == {}
    for cell, hours in zip(plan.runs(tmp_path), (1, 2), strict=True):
        Run(tmp_path / cell.name).save_result(translated(hours, seconds=3600 * hours))
    shown = view(plan.experiment, tmp_path)
    assert [line[-2:] for line in shown.lines] == [["2.00", "3.00"]]
    path = write(plan, shown, tmp_path)
    told = "QKNorm + LayerNorm was best at the highest rate tried, so a higher one may be better still."
    assert told in path.read_text().partition("**Caveat.**")[2]
    assert told in path.with_suffix(".tex").read_text()
    assert "](../figures/talks/henry-table1_learning-rates.png)" in path.read_text()
    assert (tmp_path / "figures" / "talks" / "henry-table1_learning-rates.png").read_bytes().startswith(b"\x89PNG")
