"""How far each row of a table is from its reference: ours with its 95 % interval, and what was published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from qknorm.experiments.figures import COLOURS, STYLE, save
from qknorm.experiments.papers.results import Result, Row

_ROW_HEIGHT, _FRAME_HEIGHT = 0.32, 1.3  # inches


def draw(result: Result, file: Path) -> Path | None:
    """A line for each row that was compared; None if there is none."""
    rows = [row for row in result.rows if row.difference is not None]
    if not rows:
        return None
    return draw_rows(rows, result.compared[0].name, result.contest.title, file)


def draw_rows(rows: Sequence[Row], reference: str, title: str, file: Path) -> Path:
    """The same for rows of any origin, all of which were compared."""
    with mpl.rc_context(STYLE):
        return save(_figure(rows, reference, title), file)


def _figure(rows: Sequence[Row], reference: str, title: str) -> Figure:
    height = _FRAME_HEIGHT + _ROW_HEIGHT * len(rows)
    figure, axis = plt.subplots(figsize=(7.4, height), layout="constrained")
    axis.axvline(0, color="0.6", linewidth=0.8)
    for place, row in enumerate(rows):
        course = [value for value in (row.low, row.difference, row.high) if value is not None]
        label = None if place else "ours, 95 %"
        axis.plot(course, [place] * 3, "-o", color=COLOURS[0], markersize=5, markevery=[1], label=label)
    published = {place: row.paper_difference for place, row in enumerate(rows) if row.paper_difference is not None}
    if published:
        axis.plot(list(published.values()), list(published), "D", color=COLOURS[1], markersize=5, label="paper")
        figure.legend(loc="outside lower center", ncols=2)
    axis.set_yticks(range(len(rows)), [row.system for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)  # the first on top, as in the table
    axis.set_xlabel(f"BLEU less that of {reference}")
    axis.set_title(title)
    return figure
