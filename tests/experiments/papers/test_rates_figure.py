from __future__ import annotations

from pathlib import Path

from qknorm.experiments.papers import rates_figure
from qknorm.runs.run import Run
from tests.contents import translated, validation, write_metrics
from tests.experiments.papers.plans import planned


def test_a_curve_for_each_row_with_several_rates(own: str, talks: str, tmp_path: Path) -> None:
    """Only the QKNorm row has been trained at both of its rates."""
    experiment = planned(own, "smoke", talks).experiment
    (contest,) = experiment.contests
    file = tmp_path / "figures" / "rates"
    assert rates_figure.draw(experiment, contest, tmp_path, file) is None
    qknorm, p3 = contest.entrants
    done = [qknorm.candidates[0].runs[0], qknorm.candidates[1].runs[0], p3.candidates[0].runs[0]]
    for number, run in enumerate(done):
        (tmp_path / run).mkdir(parents=True)
        Run(tmp_path / run).save_result(translated(10.0 + number))
        write_metrics(tmp_path / run, validation(measures={"dev_loss": 3.0 - number}))
    drawn = rates_figure.draw(experiment, contest, tmp_path, file)
    assert drawn == tmp_path / "figures" / "rates.png"
    svg = drawn.with_suffix(".svg").read_text()
    for text in ("QKNorm + LayerNorm", "0.002", "0.004", "best dev BLEU", "dev loss at the end"):
        assert f"<!-- {text} -->" in svg
    assert "<!-- p = 3 -->" not in svg, "one rate is not a curve"
