"""What a sweep says, in words and tables, and the page that it is written on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qknorm.experiments import formats
from qknorm.experiments.citations import source
from qknorm.experiments.sweep.about import About


@dataclass(frozen=True)
class Table:
    """Numbers as text; without a title it belongs to the table before it."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    """A figure that was drawn."""

    path: Path
    """Of the PNG; the SVG and the PDF lie beside it."""
    heading: str
    """Of the figures that belong together."""
    caption: str


@dataclass(frozen=True)
class Answer:
    """Empty where nothing can be said yet."""

    sentences: list[str] = field(default_factory=list)
    verdict: list[str] = field(default_factory=list)
    """The shortest answer, which is among the sentences."""
    tables: list[Table] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    """For results.json."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """The tables' numbers as they are, for summary.csv."""


def page(about: About, answer: Answer) -> str:
    """Markdown that says what was asked, how it was tried, what came out, and what that does not say."""
    parts = [
        f"# {about.title}" if about.title else "",
        f"**Question.** {about.question}" if about.question else "",
        f"**Setting.** {about.shrunk}" if about.shrunk else "",
        f"**Result.** {' '.join(answer.sentences)}" if answer.sentences else "",
        as_markdown(answer.tables),
        f"**Caveat.** {about.caveat}" if about.caveat else "",
        source(about.paper),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def as_markdown(tables: Sequence[Table]) -> str:
    parts = []
    for table in tables:
        parts += [f"### {table.title}\n"] * bool(table.title)
        parts += [f"{table.note}\n"] * bool(table.note)
        parts += [formats.as_markdown([table.columns, ["---"] * len(table.columns), *table.rows]), ""]
    return "\n".join(parts).rstrip()


def as_latex(about: About, tables: Sequence[Table]) -> str:
    """The same as floating tables; each caption says what was shrunk."""
    title, parts = about.title, []
    for table in tables:
        title = table.title or title  # without one it belongs to the table before it
        if table.rows:
            caption = " ".join(filter(None, [title and f"{title}.", table.note, about.shrunk]))
            parts.append(formats.as_latex(caption, table.columns, table.rows))
    return "\n".join(parts)
