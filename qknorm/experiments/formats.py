"""Tables in the forms in which somebody wants them: Markdown, CSV, and LaTeX for documents that load booktabs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\rightarrow$", "±": r"$\pm$", "≤": r"$\leq$",
    "≥": r"$\geq$", "–": "--", "−": "$-$", "α": r"$\alpha$", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Numbers as text; without a title it belongs to the table before it."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]
    text_columns: int = 1
    """So many of the first columns are words."""


def as_markdown(tables: Sequence[Table]) -> str:
    parts = []
    for table in tables:
        parts += [f"### {table.title}\n"] * bool(table.title) + [f"{table.note}\n"] * bool(table.note)
        parts += [*map(_line, [table.columns, ["---"] * len(table.columns), *table.rows]), ""]
    return "\n".join(parts).rstrip()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def as_csv(records: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """The numbers as they are, not rounded; all columns that some record has, unless others are given."""
    text = io.StringIO()
    known = columns or list(dict.fromkeys(key for record in records for key in record))
    writer = csv.DictWriter(text, known, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_latex(title: str, tables: Sequence[Table], how: Sequence[str]) -> str:
    """Floating tables for a document that loads booktabs; each caption says how the numbers came about."""
    parts = []
    for table in tables:
        title = table.title or title
        if table.rows:
            ended = title if not title or title[-1] in ".?!" else f"{title}."
            parts.append(_floating(" ".join(filter(None, [ended, table.note, *how])), table))
    return "\n".join(parts)


def _floating(caption: str, table: Table) -> str:
    rows = [" & ".join(map(latex, line)) + r" \\" for line in (table.columns, *table.rows)]
    shape = "l" * table.text_columns + "r" * (len(table.columns) - table.text_columns)
    return "\n".join(
        [
            r"\begin{table}", r"\centering", rf"\caption{{{latex(caption)}}}", rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


def latex(text: str) -> str:
    """Text that LaTeX prints as it stands; a sign before a digit is a minus."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)
