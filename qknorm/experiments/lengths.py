"""The picture of `qknorm data check`: how long the sentences of a corpus are."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from qknorm.data.cleaning import CleaningReport
from qknorm.data.textfiles import replacing
from qknorm.experiments.figures import COLOURS, STYLE

_BINS = 60


def draw_lengths(report: CleaningReport, names: tuple[str, str], path: Path) -> None:
    """A histogram of sentence lengths in words, both languages in one picture."""
    sides = (report.source_lengths, report.target_lengths)
    longest = max([*sides[0], *sides[1], 1])
    bins = range(0, longest + 2, max(1, longest // _BINS))
    with mpl.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
        for lengths, name, colour in zip(sides, names, COLOURS, strict=False):
            weights = list(lengths.values())
            axis.hist(list(lengths), bins=bins, weights=weights, histtype="step", color=colour, label=name)
        axis.set_xlabel("words in a sentence")
        axis.set_ylabel("sentences")
        axis.set_title(f"{report.kept:,} pairs kept of {report.read:,}")
        axis.legend()
        with replacing(path) as file:
            figure.savefig(file, dpi=150, format="png")
        plt.close(figure)
