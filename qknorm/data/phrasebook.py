"""phrasebook-en-gl: sentences in English and Galician that come with the package, drawn once from a grammar of ours."""

from __future__ import annotations

import bz2
import io
from collections.abc import Iterator
from importlib import resources
from itertools import islice

from qknorm.data.importers import Pair

SIZE = 50_000


def pairs(count: int = SIZE) -> list[Pair]:
    """The first of them, no two the same."""
    return [Pair(*pair) for pair in islice(zip(_lines("en"), _lines("gl"), strict=True), count)]


def _lines(language: str) -> Iterator[str]:
    packed = (resources.files("qknorm.data") / f"phrasebook.{language}.bz2").read_bytes()
    with bz2.open(io.BytesIO(packed), "rt", encoding="utf-8", newline="\n") as lines:
        yield from (line.removesuffix("\n") for line in lines)
