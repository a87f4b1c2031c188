from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from matplotlib.collections import LineCollection

from qknorm.experiments.views.p_figures import Curves
from qknorm.experiments.views.p_statistics import analyse
from tests.experiments.views.outcomes import sweep


def test_the_interval_at_the_end_of_a_curve_is_that_of_the_table() -> None:
    runs = [run for run in sweep({"same": {2.0: 0.0, 3.0: -0.02}}, noise=0.01) if run.p]
    statistics = analyse(runs)
    assert statistics is not None
    expected = statistics.arms[1].differences["final_val_loss"].estimate
    figure = Curves(runs, []).losses()
    (bars,) = [drawn for drawn in figure.axes[1].collections if isinstance(drawn, LineCollection)]
    plt.close(figure)
    ((_, low), (_, high)) = bars.get_segments()[0]
    assert (low, high) == (pytest.approx(expected.low), pytest.approx(expected.high))
