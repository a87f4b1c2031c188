"""Text files as lines, under one contract, and files that appear whole or not at all.

A line ends with LF or CRLF and with nothing else: U+2028, U+0085 and form feeds are characters like any other, since
tools that split at them shift a whole corpus. Text is UTF-8, with or without a byte-order mark. gzip is recognised.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from qknorm.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = "\ufeff"
_HALF_WRITTEN = ".part"  # how the name of a file ends that is still being written
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Quotation marks and dashes as Windows has them, in a text whose letters are nearly all those of English.
_WINDOWS_SIGNS, _LATIN_SHARE = re.compile(rb"[\x91-\x97]"), 0.7
_ZIP_MAGIC, _PDF_MAGIC, _OLD_OFFICE_MAGIC = b"PK\x03\x04", b"%PDF-", b"\xd0\xcf\x11\xe0"
# What a packed document is, by the beginning of the name of something in it.
_PACKED = {
    "word/": "a Word document",
    "xl/": "an Excel workbook",
    "ppt/": "a PowerPoint presentation",
    "content.xml": "an OpenDocument file, as LibreOffice writes",
}


def open_bytes(path: Path) -> BinaryIO:
    """The content of a file, unpacked if it is gzip; an InputError if there is nothing to open."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; a text file is needed here")
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} is a pipe or a device; a regular file is needed here, since it is read more than once"
        )
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except PermissionError:
        raise InputError(f"{path} may not be read: permission denied") from None
    beginning = file.read(len(_PDF_MAGIC))
    file.seek(0)
    if document := _document(path, beginning):
        raise InputError(f"{path} is {document}, not plain text: save it as plain text in UTF-8, a sentence a line")
    return cast(BinaryIO, _Gunzipped(path)) if beginning.startswith(_GZIP_MAGIC) else file


def _document(path: Path, beginning: bytes) -> str | None:
    """What a file is that begins so, if it is what a program for texts or tables has written."""
    if beginning.startswith(_PDF_MAGIC):
        return "a PDF document"
    if beginning.startswith(_OLD_OFFICE_MAGIC):
        return "a document of an older Word or Excel"
    if not beginning.startswith(_ZIP_MAGIC):
        return None
    with contextlib.suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as packed:
        for name in packed.namelist():
            for start, document in _PACKED.items():
                if name.startswith(start):
                    return document
    return "a zip archive"


class _Gunzipped(gzip.GzipFile):
    """A gzip file that says in a sentence when it is damaged."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")

    def read(self, size: int | None = -1) -> bytes:
        with self._errors_named():
            return super().read(size)

    def readline(self, size: int | None = -1) -> bytes:
        with self._errors_named():
            return super().readline(size)

    @contextlib.contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.name} is a damaged gzip file: {error}") from None


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, one at a time, without their ends."""
    with open_bytes(path) as file:
        yield from decoded_lines(file, str(path))


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The same of a file that is open, such as standard input; its name stands in the message about a bad line."""
    for number, raw in enumerate(file, start=1):
        line = _decoded(raw.removesuffix(b"\r\n" if raw.endswith(b"\r\n") else b"\n"), name, number)
        yield line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def _decoded(raw: bytes, name: str, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        looks_like = _encoding(raw, number)
        hint = f"it looks like {looks_like}; " if looks_like else ""
        how = f": iconv -f {looks_like.upper()} -t UTF-8 FILE > NEW-FILE" if looks_like else ""
        raise InputError(
            f"{name}, line {number}: byte 0x{raw[error.start]:02x} at offset {error.start} of the line is not UTF-8; "
            f"{hint}convert the text to UTF-8 first{how}"
        ) from None


def _encoding(raw: bytes, number: int) -> str:
    """What a line that is not UTF-8 looks like; empty if like nothing that is known here."""
    if number == 1 and raw.startswith(_UTF16_MARKS):
        return "UTF-16"
    latin = sum(byte < 0x80 for byte in raw)
    return "Windows-1252" if _WINDOWS_SIGNS.search(raw) and latin > _LATIN_SHARE * len(raw) else ""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name only when it is complete: written beside, synced, renamed.

    A link stays and leads to what was written; pipes and devices, which cannot be replaced, are written to.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_HALF_WRITTEN)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with_usual_permissions(temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"the disk is full: {path} could not be written; free some room and try again") from error
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def forget_half_written(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote to the folder; nobody may be writing there now."""
    for path in folder.rglob(f".*{_HALF_WRITTEN}"):
        path.unlink(missing_ok=True)


def with_usual_permissions(path: Path) -> None:
    """Let a file or folder be read and written by those who may read and write what this user makes (umask).

    What is written beside first has been made for this user alone.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines ended by LF, all or nothing; returns how many."""
    count = 0
    with replacing(path) as file:
        for line in lines:
            if "\n" in line:
                raise ValueError(f"line {count + 1} for {path} contains a line feed")
            file.write(line.encode("utf-8") + b"\n")
            count += 1
    return count
