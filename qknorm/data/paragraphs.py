"""The paragraphs of a book: plain text with a paragraph on each line, or wrapped and parted by blank lines; or DOCX."""

from __future__ import annotations

import itertools
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from qknorm.data.sentences import sentences
from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MOST_BYTES, _MOST_PACKED = 500_000_000, 200  # of a document, and for each byte of its file
_WRAPPED = 0.9  # of the lines that another follows have no room for its first word


def read_sentences(path: Path) -> list[str]:
    """The sentences of all paragraphs."""
    return [sentence for paragraph in read_paragraphs(path) for sentence in sentences(paragraph)]


def read_paragraphs(path: Path) -> list[str]:
    """All that are not blank; an InputError if there are none, or if the file is not text."""
    try:
        lines = _of_docx(path) if zipfile.is_zipfile(path) else _of_text(list(read_lines(path)))
        paragraphs = [" ".join(line.split()) for line in lines]
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
        raise InputError(f"{path} is not a Word document that can be read: {error}") from None
    except (ParseError, DefusedXmlException) as error:
        raise InputError(f"{path} is a damaged Word document: {error}") from None
    if binary := next((number for number, text in enumerate(paragraphs, 1) if "\0" in text), None):
        raise InputError(f"{path} is not text: there is a NUL byte in its paragraph {binary}")
    if not any(paragraphs):
        raise InputError(f"{path} is empty; there is nothing to align")
    return [text for text in paragraphs if text]


def _of_docx(path: Path) -> Iterator[str]:
    """The text of each paragraph, tables and text boxes included."""
    with zipfile.ZipFile(path) as packed:
        about = packed.getinfo("word/document.xml")
        if about.file_size > min(_MOST_BYTES, _MOST_PACKED * max(about.compress_size, 10_000)):
            raise InputError(f"{path} would unpack to {about.file_size:,} bytes; that is not a book")
        with packed.open(about) as file:
            text: list[str] = []
            for _, element in iterparse(file, events=("end",)):
                if element.tag == _WORD + "t":
                    text.append(element.text or "")
                elif element.tag in (_WORD + "tab", _WORD + "br"):
                    text.append(" ")
                elif element.tag == _WORD + "p":
                    yield "".join(text)
                    text.clear()
                    element.clear()


def _of_text(lines: Sequence[str]) -> Iterator[str]:
    """Each line, or each block of lines that were broken where they were full."""
    stripped = [line.strip() for line in lines]
    if not _are_wrapped(stripped):
        return iter(stripped)
    return (" ".join(block) for is_text, block in itertools.groupby(stripped, bool) if is_text)


def _are_wrapped(lines: Sequence[str]) -> bool:
    """Whether nearly every line within a block would have been too long with the first word of the next line."""
    inner = [(line, following) for line, following in itertools.pairwise(lines) if line and following]
    width = max(map(len, lines), default=0)
    full = sum(len(line) + len(following.split()[0]) >= width for line, following in inner)
    open_ended = sum(line[-1].isalnum() or line[-1] in ",;-–" for line, _ in inner)
    return full >= _WRAPPED * len(inner) and 2 * open_ended >= len(inner) > 0
