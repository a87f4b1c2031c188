from __future__ import annotations

from qknorm.experiments.report.charts import Curve
from qknorm.experiments.report.section import course, figures
from tests.contents import validation


def test_a_course_has_the_validations_that_measured_it() -> None:
    validations = [validation(5), validation(10, measures={"dev_bleu": 2.5})]
    assert course(validations, lambda line: line.dev_bleu) == [(10.0, 2.5)]


def test_nothing_to_draw_is_no_figure() -> None:
    assert figures("Loss", "", [Curve("x", [], 0)], "loss") == []
    assert [figure.title for figure in figures("Loss", "", [Curve("x", [(1.0, 2.0)], 0)], "loss")] == ["Loss"]
