"""The sections of a report in their order on the page: a new one is a file here, and its name in the table.

In the file `corpus` is the class `CorpusSection`, with its data and its text; corpus.html.jinja shows it.
"""

from __future__ import annotations

from importlib import import_module

from qknorm.experiments.report.section import Section

SECTIONS = (
    "scores",
    "learning",
    "examples",
    "attention",
    "sharpness",
    "corpus",
    "settings",
    "language",
    "sweep",
)


def kinds_of_sections() -> list[type[Section]]:
    """Their classes."""
    return [getattr(import_module(f"{__name__}.{name}"), f"{name.capitalize()}Section") for name in SECTIONS]
