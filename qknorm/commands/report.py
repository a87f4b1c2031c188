"""`qknorm report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qknorm.screen import Screen


def report(
    folder: Annotated[Path, typer.Argument(help="A run, a sweep, or a folder with runs in it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
) -> None:
    """Write one HTML file with scores, learning curves, examples and attention. It loads nothing from elsewhere."""
    from qknorm.experiments.report import write_report

    write_report(folder, output)
    size = output.stat().st_size / 1e6
    Screen().print(f"{output} ({size:.1f} MB): open it in a browser.")
