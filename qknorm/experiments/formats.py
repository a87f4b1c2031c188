"""Tables in the forms in which somebody wants them: Markdown, CSV, and LaTeX for documents that load booktabs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\rightarrow$", "±": r"$\pm$", "≤": r"$\leq$",
    "≥": r"$\geq$", "–": "--", "−": "$-$", "α": r"$\alpha$", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def as_markdown(lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def as_csv(records: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """The numbers as they are, not rounded; all columns that some record has, unless others are given."""
    text = io.StringIO()
    known = columns or list(dict.fromkeys(key for record in records for key in record))
    writer = csv.DictWriter(text, known, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_latex(caption: str, columns: Sequence[str], lines: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A floating table for a document that loads booktabs; the first columns are text, the others numbers."""
    rows = [" & ".join(map(latex, line)) + r" \\" for line in (columns, *lines)]
    shape = "l" * text_columns + "r" * (len(columns) - text_columns)
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
