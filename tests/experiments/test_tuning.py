from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.experiments import tuning
from qknorm.experiments.plan import Plan
from qknorm.runs.run import Run
from tests.contents import translated, validation, write_metrics
from tests.experiments.plans import contest_of, planned


def trained(plan: Plan, folder: Path, bleu: dict[float, float], rows: tuple[str, ...]) -> None:
    """Some rows at some rates, with a dev BLEU for each rate."""
    for cell in plan.cells:
        rate = cell.settings["rate"]
        if rate in bleu and cell.settings["system"] in rows:
            (folder / cell.name).mkdir(parents=True)
            Run(folder / cell.name).save_result(translated(bleu[rate]))
            write_metrics(folder / cell.name, validation(measures={"dev_loss": 3.0 - bleu[rate]}))


LOWEST = "A norm was best at the lowest rate tried, so a lower one may be better still."
HIGHEST = "A norm was best at the highest rate tried, so a higher one may be better still."


@pytest.mark.parametrize(
    ("bleu", "expected"),
    [
        ({0.001: 3, 0.002: 2, 0.004: 1}, [LOWEST]),
        ({0.001: 1, 0.002: 2, 0.004: 3}, [HIGHEST]),
        ({0.001: 1, 0.002: 3, 0.004: 2}, []),
        ({0.001: 1, 0.002: 3}, []),  # the highest has failed, or is not done
        ({0.001: 3}, []),
        ({}, []),
    ],
    ids=str,
)
def test_a_best_rate_at_the_end_of_those_tried_is_told(
    bleu: dict[float, float], expected: list[str], talks: str, tmp_path: Path
) -> None:
    table = "{title: T, rates: [0.001, 0.002, 0.004], rows: [{like: qknorm, name: a, label: A norm}]}"
    (tmp_path / "rates.yaml").write_text(table)
    plan = planned(str(tmp_path / "rates.yaml"), "smoke", talks)
    trained(plan, tmp_path, bleu, ("a",))
    assert tuning.caveats_of(contest_of(plan, tmp_path)) == expected


def test_rows_that_were_best_at_the_same_end_share_a_sentence(own: str, talks: str, tmp_path: Path) -> None:
    plan = planned(own, "smoke", talks)
    trained(plan, tmp_path, {0.002: 2.0, 0.004: 4.0}, ("qknorm", "p3"))
    assert tuning.caveats_of(contest_of(plan, tmp_path)) == [
        "QKNorm + LayerNorm and p = 3 & more were best at the highest rate tried, so a higher one may be better still."
    ]


def test_rates_are_compared_by_the_metric_that_chose_the_checkpoints(own: str, talks: str, tmp_path: Path) -> None:
    """Of a glossary BLEU is 0 at every rate, and the first one won."""
    plan = planned(own, "smoke", talks)
    for cell in plan.cells:
        if cell.settings["system"] == "qknorm":
            (tmp_path / cell.name).mkdir(parents=True)
            chrf = 10000 * cell.settings["rate"]
            Run(tmp_path / cell.name).save_result(translated(0.0, best_dev_score=chrf))
    assert contest_of(plan, tmp_path).entrants[0].chosen.rate == 0.004


def test_a_curve_for_each_row_with_several_rates(own: str, talks: str, tmp_path: Path) -> None:
    plan = planned(own, "smoke", talks)
    file = tmp_path / "figures" / "rates"
    assert tuning.draw(contest_of(plan, tmp_path), file) is None
    trained(plan, tmp_path, {0.002: 1.0, 0.004: 2.0}, ("qknorm",))
    trained(plan, tmp_path, {0.002: 1.0}, ("p3",))
    assert tuning.draw(contest_of(plan, tmp_path), file) == tmp_path / "figures" / "rates.png"
    svg = file.with_suffix(".svg").read_text()
    for text in ("QKNorm + LayerNorm", "0.002", "0.004", "best dev BLEU", "dev loss at the end"):
        assert f"<!-- {text} -->" in svg
    assert "<!-- p = 3 & more -->" not in svg, "one rate is not a curve"
