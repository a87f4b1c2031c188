"""`qknorm quickstart`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qknorm.screen import Screen


def quickstart(
    out: Annotated[Path, typer.Option(help="Folder for the two models and the report.")] = Path("quickstart"),
) -> None:
    """Train two translators side by side, with and without query-key normalisation, in at most ten minutes."""
    from qknorm.experiments import quickstart

    quickstart.run(out, Screen())
