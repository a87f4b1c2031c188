from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from qknorm.experiments.figures import save


def curve() -> Figure:
    figure, axis = plt.subplots()
    axis.plot([1, 2, 3], [2, 1, 3])
    return figure


def test_the_same_figure_is_the_same_files(tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert save(curve, tmp_path / name / "curve").name == "curve.png"
    for form in ("svg", "pdf", "png"):
        first, second = ((tmp_path / name / f"curve.{form}").read_bytes() for name in ("first", "second"))
        assert first == second
    assert not plt.get_fignums()
