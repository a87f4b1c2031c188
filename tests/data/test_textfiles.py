from __future__ import annotations

import errno
import gzip
import os
import random
import stat
import zipfile
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qknorm.data.textfiles import read_lines, replacing, write_lines
from qknorm.errors import InputError

lines = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r")))


@given(lines)
@example([])
@example(["one\u2028still\u2029one\x85\f\v\x1c\x00", "x" * 3_000_000, "two"])
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """Nothing but LF and CRLF ends a line."""
    path = tmp_path_factory.mktemp("lines") / "file"
    assert write_lines(path, texts) == len(texts)
    expected = [text.removeprefix("\ufeff") if i == 0 else text for i, text in enumerate(texts)]
    assert list(read_lines(path)) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_line_ends_byte_order_mark_and_gzip(tmp_path: Path, end: bytes) -> None:
    """Gzip is recognised by its content, not by a name."""
    path = tmp_path / "misnamed.txt"
    for mark, last_end in product((b"", b"\xef\xbb\xbf"), (b"", end)):
        content = mark + end.join([b"one", b"", "olá".encode()]) + last_end
        for packed in (content, gzip.compress(content)):
            path.write_bytes(packed)
            assert list(read_lines(path)) == ["one", "", "olá"]
    path.write_bytes(b"a\r\r\nb\r")
    assert list(read_lines(path)) == ["a\r", "b\r"], "a lone carriage return is a character, even at the end"


WINDOWS = "it looks like Windows-1252; convert the text to UTF-8 first: iconv -f WINDOWS-1252 -t UTF-8"


@pytest.mark.parametrize(
    ("line", "sentence", "is_windows"),
    [
        (b"se\xf1or\n", r"file, line 2: byte 0xf1 at offset 2 of the line is not UTF-8", False),
        ("“It’s a café – isn’t it?”".encode("cp1252"), "is not UTF-8", True),
        ("“Привет, как дела”".encode("cp1251"), "is not UTF-8", False),
        ("hello\n".encode("utf-16"), "looks like UTF-16", False),
    ],
    ids=["Latin-1", "Windows-1252", "Windows-1251", "UTF-16"],
)
def test_what_is_not_utf8_is_located_and_named(line: bytes, sentence: str, is_windows: bool, tmp_path: Path) -> None:
    """Text of Windows is told by its quotation marks."""
    (tmp_path / "file").write_bytes(line if sentence.endswith("16") else b"fine\n" + line)
    with pytest.raises(InputError, match=sentence) as refused:
        list(read_lines(tmp_path / "file"))
    assert (WINDOWS in str(refused.value)) == is_windows


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        ("word/document.xml", "a Word document"),
        ("xl/workbook.xml", "an Excel workbook"),
        ("content.xml", "an OpenDocument file"),
        ("other", "a zip archive"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "a document of an older Word or Excel"),
        (b"PK\x03\x04 and nothing more", "a zip archive"),
    ],
)
def test_a_document_is_named_as_what_it_is(inside: str | bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    if isinstance(inside, bytes):
        path.write_bytes(inside)
    else:
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("[Content_Types].xml", "")
            packed.writestr(inside, "text")
    with pytest.raises(InputError, match=rf"mine\.txt is {kind}.*: save it as plain text in UTF-8"):
        list(read_lines(path))


def test_what_is_not_a_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is a pipe or a device"):
        list(read_lines(tmp_path / "pipe"))
    with pytest.raises(InputError, match="nowhere does not exist"):
        list(read_lines(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="is a folder"):
        list(read_lines(tmp_path))


def test_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    whole = gzip.compress(random.Random(0).randbytes(5000).hex().encode())
    for damaged in (whole[:-100], whole[:2000] + b"\x00\xff" * 50 + whole[2100:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"file\.gz is a damaged gzip file"):
            list(read_lines(path))


class TestReplacing:
    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("old")

        def interrupted() -> None:
            with replacing(path) as file:
                file.write(b"half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_full_disk_is_said_in_a_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "file"
        path.write_text("old")

        def full(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="the disk is full"):
            write_lines(path, ["new"])
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_line_feed_inside_a_line_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="line 2"):
            write_lines(tmp_path / "file", ["one", "t\nwo"])
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
    def test_the_users_umask_decides_who_may_read(self, umask: int, mode: int, tmp_path: Path) -> None:
        before = os.umask(umask)
        try:
            write_lines(tmp_path / "file", ["one"])
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


class TestWhatStandsAtThePlace:
    """What has the name of a new file already, and is not a file."""

    def test_a_link_stays_and_leads_to_what_was_written(self, tmp_path: Path) -> None:
        target, link = tmp_path / "target", tmp_path / "link"
        target.write_text("old")
        link.symlink_to(target)
        write_lines(link, ["new"])
        assert link.is_symlink()
        assert target.read_text() == "new\n"

    def test_a_pipe_is_written_to(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            write_lines(tmp_path / "pipe", ["through"])
            assert os.read(reader, 100) == b"through\n"
        finally:
            os.close(reader)
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="is a folder; give the name of a file"):
            write_lines(tmp_path, ["lost"])
        assert list(tmp_path.iterdir()) == []
