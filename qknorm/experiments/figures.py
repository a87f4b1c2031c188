"""How all figures look, and how they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
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


def save(figure: Figure, path: Path) -> Path:
    """Write PATH.svg, PATH.pdf and PATH.png, and let the figure go; returns the PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})
    figure.savefig(path.with_name(f"{path.name}.pdf"), metadata={"CreationDate": None})
    png = path.with_name(f"{path.name}.png")
    figure.savefig(png, dpi=200, metadata={"Software": None})
    plt.close(figure)
    return png
