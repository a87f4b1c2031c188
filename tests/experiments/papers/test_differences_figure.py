from __future__ import annotations

from pathlib import Path

from qknorm.evaluation.significance import Comparison
from qknorm.experiments.papers import differences_figure
from qknorm.experiments.papers.results import Result, Row
from tests.experiments.papers.plans import planned


def test_only_rows_that_were_compared_are_drawn(talks: str, tmp_path: Path) -> None:
    (contest,) = planned("henry-table6", "smoke", talks).experiment.contests
    reference = Row("talks", "the full model", paper=33.0, ours=20.0)
    missing = Row("talks", "without norms", paper=30.0, paper_difference=-3.0)
    compared = [Comparison("the full model", 20.0, 19.0, 21.0)]
    file = tmp_path / "differences"
    assert differences_figure.draw(Result(contest, [reference, missing], compared), file) is None
    worse = Row("talks", "without g", paper=24.5, paper_difference=-8.5, difference=-7.0, low=-8.0, high=-6.0)
    drawn = differences_figure.draw(Result(contest, [reference, worse, missing], compared), file)
    assert drawn == tmp_path / "differences.png"
    svg = drawn.with_suffix(".svg").read_text()
    for text in ("without g", "BLEU less that of the full model", "ours, 95 %", "paper", "talks"):
        assert f"<!-- {text} -->" in svg
    assert "<!-- without norms -->" not in svg


def test_a_table_without_published_figures_has_no_mark_for_them(talks: str, tmp_path: Path) -> None:
    (contest,) = planned("henry-table6", "smoke", talks).experiment.contests
    row = Row("talks", "mine", paper=None, difference=1.0, low=0.5, high=1.5)
    drawn = differences_figure.draw(
        Result(contest, [row], [Comparison("the full model", 20.0, 19.0, 21.0)]), tmp_path / "differences"
    )
    assert drawn is not None
    assert "<!-- paper -->" not in drawn.with_suffix(".svg").read_text()
