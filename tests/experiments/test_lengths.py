from __future__ import annotations

from pathlib import Path

from qknorm.data.cleaning import CleaningReport
from qknorm.experiments.lengths import draw_lengths


def test_the_histogram_is_a_picture(tmp_path: Path) -> None:
    report = CleaningReport(read=310, kept=300)
    for length in range(1, 31):
        report.source_lengths[length], report.target_lengths[length] = 10, 11 - length % 3
    draw_lengths(report, ("en", "gl"), tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
