from __future__ import annotations

from qknorm.experiments.report.charts import Line
from qknorm.experiments.report.collect import Validation
from qknorm.experiments.report.section import course, figures


def test_a_course_has_the_validations_that_measured_it() -> None:
    validations = [
        Validation(step=step, seconds=1.0, train_loss=1.0, dev_bleu=bleu) for step, bleu in ((5, None), (10, 2.5))
    ]
    assert course(validations, lambda validation: validation.dev_bleu) == [(10.0, 2.5)]


def test_nothing_to_draw_is_no_figure() -> None:
    assert figures("Loss", "", [Line("x", [], 0)], "loss") == []
    assert [figure.title for figure in figures("Loss", "", [Line("x", [(1.0, 2.0)], 0)], "loss")] == ["Loss"]
