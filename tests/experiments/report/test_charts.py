from __future__ import annotations

import math

import pytest

from qknorm.experiments.report.charts import Curve, curve_chart, tick_labels, ticks


@pytest.mark.parametrize(("low", "high"), [(0, 1), (15.4, 30.5), (-3e-5, 2e-5), (9.7651, 9.7672), (7, 7), (0, 123456)])
def test_ticks_are_few_and_hold_the_numbers(low: float, high: float) -> None:
    result = ticks(low, high)
    assert 3 <= len(result) <= 8
    assert result[0] <= low <= high <= result[-1] + 1e-12
    labels = tick_labels(result)
    assert len(set(labels)) == len(labels)
    assert [float(label.replace(",", "")) for label in labels] == pytest.approx(result)


def test_a_chart_leaves_out_what_is_no_number() -> None:
    chart = curve_chart([Curve("<x>", [(1, 2.0), (2, math.nan), (3, 1.0)], 0)], "update", "loss", "Loss")
    assert chart is not None
    assert "nan" not in chart.svg
    assert 'aria-label="Loss. &lt;x&gt;: loss falls from 2 to 1."' in chart.svg
    assert chart.rows == [["1", "2"], ["3", "1"]]
    assert curve_chart([Curve("x", [(1, math.inf)], 0)], "update", "loss", "Loss") is None


def test_a_run_without_a_validation_does_not_keep_others_from_being_drawn() -> None:
    chart = curve_chart([Curve("begun", [], 0), Curve("ended", [(1, 2.0)], 1)], "update", "loss", "Loss")
    assert chart is not None
    assert chart.legend == [("ended", 1)]
