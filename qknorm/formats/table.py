"""Formats by the endings of file names; whatever is not known here is plain text."""

from __future__ import annotations

from pathlib import Path

from qknorm.formats.document import Document
from qknorm.formats.text import PlainText

FORMATS: dict[str, type[Document]] = {"txt": PlainText}
"""A new format is a file of this room and its line here."""


def open_document(path: Path | None) -> Document:
    """The document in a file, which may be packed by gzip; None is standard input."""
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2] if path else "txt"
    return FORMATS.get(ending, PlainText)(path)
