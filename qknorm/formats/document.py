"""The shape of a document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path


class Document(ABC):
    """A file as what is to be translated in it, and as what becomes of it."""

    @abstractmethod
    def __init__(self, path: Path | None) -> None:
        """What the file holds; None is standard input."""

    @property
    @abstractmethod
    def segments(self) -> Iterator[str]:
        """The lines to translate, in the order of the document."""

    @abstractmethod
    def written(self, translations: Iterable[str]) -> Iterator[bytes]:
        """The document with a translation in the place of each segment, as soon as it can be written."""
