"""How all figures look, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

COLOURS = (  # told apart by colour-blind people too (Okabe and Ito)
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000",
)  # fmt: skip
MARKERS = "osD^vPX*<>"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters, which publishers ask for
    "svg.hashsalt": "qknorm",  # the same figure is the same file
}


def look(number: int) -> dict[str, Any]:
    """The colour and the marker of a system, by its number: told apart in print, too."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def shades(count: int) -> Any:
    """Colours in an order that is seen with and without colour vision, and in grey."""
    return mpl.colormaps["viridis"](np.linspace(0.0, 0.92, count))


def panels(
    rows: Sequence[str], columns: Sequence[str], x_name: str, size: tuple[float, float], share_y: bool | str = True
) -> tuple[Figure, Any]:
    """A grid whose names stand at its outer panels only, the first along its left, the second on top."""
    shape = (len(rows), len(columns))
    shared: dict[str, Any] = {"sharex": True, "sharey": share_y, "squeeze": False}
    figure, grid = plt.subplots(*shape, figsize=size, layout="constrained", **shared)
    for axis, name in zip(grid[:, 0], rows, strict=True):
        axis.set_ylabel(name)
    for axis, name in zip(grid[0], columns, strict=True):
        axis.set_title(name)
    for axis in grid[-1]:
        axis.set_xlabel(x_name)
    return figure, grid


def legend_below(figure: Figure, columns: int = 4) -> Figure:
    """One for all panels, in which each label stands once."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)
    return figure


def save(draw: Callable[[], Figure], path: Path) -> Path:
    """Draw, write PATH.svg, PATH.pdf and PATH.png, and let the figure go; returns the PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure = draw()
        figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})
        figure.savefig(path.with_name(f"{path.name}.pdf"), metadata={"CreationDate": None})
        figure.savefig(png := path.with_name(f"{path.name}.png"), dpi=200, metadata={"Software": None})
    plt.close(figure)
    return png
