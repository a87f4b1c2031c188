"""Text as people type it: what nobody sees, such as a no-break space, would be another piece to a translator."""

from __future__ import annotations

import unicodedata


def tidy(line: str) -> str:
    """In NFC, with single ordinary spaces between words and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", line).split())
