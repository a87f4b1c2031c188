from __future__ import annotations

from pathlib import Path

from qknorm.experiments.sweep.figures import draw
from tests.experiments.sweep.outcomes import NOTHING, sweep


def test_ten_figures_for_two_starts(tmp_path: Path) -> None:
    written = draw(sweep({"same": NOTHING, "comparable": NOTHING}), tmp_path)
    assert len(written) == 10
    assert len(list(tmp_path.glob("*.svg"))) == 10
    assert all(picture.path.stat().st_size > 5000 for picture in written)
