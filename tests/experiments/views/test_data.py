from __future__ import annotations

from pathlib import Path

from qknorm.experiments.listed import plan_table
from qknorm.experiments.machines import Machines
from qknorm.experiments.recipe import load_table
from qknorm.experiments.views.table import summarise
from qknorm.runs.run import Run
from qknorm.screen import Screen
from tests.contents import translated


def test_table_1_at_several_rates_counts_all_hours_and_says_where_the_best_was(talks: str, tmp_path: Path) -> None:
    table = load_table("henry-table1").model_copy(update={"rates": {"smoke": (0.002, 0.004)}})
    plan = plan_table(table, "henry-table1", "smoke", talks)
    assert Machines(jobs=1).run_missing("test", plan.runs(tmp_path), tmp_path, Screen(quiet=True)) == {}
    for cell, hours in zip(plan.runs(tmp_path), (1, 2), strict=True):
        Run(tmp_path / cell.name).save_result(translated(hours, seconds=3600 * hours))
    answer = summarise(plan.experiment, tmp_path)
    assert [row[-2:] for row in answer.tables[0].rows] == [["2.00", "3.00"]]
    path = plan.experiment.page(tmp_path)
    told = "QKNorm + LayerNorm was best at the highest rate tried, so a higher one may be better still."
    assert answer.caveats == [told]
    assert told in path.read_text().partition("**Caveat.**")[2]
    assert told in path.with_suffix(".tex").read_text()
    assert "](../figures/talks/henry-table1_learning-rates.png)" in path.read_text()
    assert (tmp_path / "figures" / "talks" / "henry-table1_learning-rates.png").read_bytes().startswith(b"\x89PNG")
