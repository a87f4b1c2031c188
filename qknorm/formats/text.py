"""Plain text: every line is a segment, written as soon as it is translated, so that a stream may have no end."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from qknorm.data.textfiles import decoded_lines, read_lines
from qknorm.formats.document import Document


class PlainText(Document):
    """N lines in are N lines out."""

    def __init__(self, path: Path | None) -> None:
        self._lines = read_lines(path) if path else decoded_lines(sys.stdin.buffer, "standard input")

    @property
    def segments(self) -> Iterator[str]:
        return self._lines

    def written(self, translations: Iterable[str]) -> Iterator[bytes]:
        return (line.encode() + b"\n" for line in translations)
