from __future__ import annotations

from qknorm.experiments.report.sections.sharpness import scale_curves
from tests.contents import validation


def test_g_of_a_layer_begins_at_its_start_and_is_the_mean_of_its_heads() -> None:
    scales = {"encoder.0.attention": [2.0, 4.0], "decoder.0.attention": 7.0}
    (line,) = scale_curves([validation(10, scales=scales)], r"encoder\.\d+\.attention", 5.0)
    assert line.points == [(0.0, 5.0), (10.0, 3.0)]
