"""Files from the network: resumed when broken off, checked against a digest, unpacked without trusting the archive."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO
from urllib.parse import urlsplit

import requests
import urllib3
from filelock import FileLock
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.screen import Screen

_ATTEMPTS = 4
_FIRST_PAUSE = 1.0  # seconds before the second attempt; each later pause is twice as long
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two pieces of the answer
_CHUNK = 1 << 18
_BROKEN_OFF = (requests.RequestException, urllib3.exceptions.HTTPError)
_YOURSELF = "fetch the file yourself, and then: qknorm data get NAME --from DIR"


def download(url: str, target: Path, *, sha256: str | None = None) -> Path:
    """Fetch a file once; what arrived before a break stays in `target`.part and is not asked for again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(target.name + ".lock")):  # two processes would write into one part
        if not target.exists():
            _fetch(url, target, sha256)
    return target


def _fetch(url: str, target: Path, sha256: str | None) -> None:
    part = target.with_name(target.name + ".part")
    try:
        _receive(url, part)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"the disk is full: {part} could not be written; free some room and try again") from error
        raise
    if sha256 is not None:
        try:
            check_sha256(part, sha256, _without_password(url), f"try again, or {_YOURSELF}")
        except InputError:
            part.unlink()
            raise
    part.replace(target)
    _version_file(part).unlink(missing_ok=True)


def check_sha256(path: Path, expected: str, name: str, remedy: str) -> None:
    """An InputError that names both digests if the file is not the expected one."""
    actual = sha256_of(path)
    if actual != expected:
        raise InputError(f"{name} is not the expected file: its sha256 is {actual}, not {expected}; {remedy}")


def sha256_of(path: Path) -> str:
    """The digest of a file as it is written in lists of checksums."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(url: str, part: Path) -> None:
    """Try a few times, each time asking only for what is missing."""
    for attempt in range(_ATTEMPTS):
        if attempt > 0:
            time.sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
        try:
            return _receive_rest(url, part)
        except _BROKEN_OFF:
            continue
    raise InputError(f"{_without_password(url)} cannot be reached; check the network, or {_YOURSELF}")


def _receive_rest(url: str, part: Path) -> None:
    done = part.stat().st_size if part.exists() else 0
    # Without compression on the way, so that positions in the part are positions in the file.
    headers = {"Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        with contextlib.suppress(FileNotFoundError):  # a server need not say which version it sends
            headers["If-Range"] = _version_file(part).read_text()
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        if _is_other_range(response, done):
            part.unlink()
            return _receive_rest(url, part)
        _check_answer(url, response)
        if response.status_code != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0
            _note_version(part, response)
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None else None
        mode = "ab" if done else "wb"
        with part.open(mode) as file, _progress(part.stem, done, total) as advance:
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                file.write(chunk)
                advance(len(chunk))
            file.flush()
            os.fsync(file.fileno())


def _version_file(part: Path) -> Path:
    """Says of which version of the file a part is, in the server's words."""
    return part.with_name(f"{part.name}.version")


def _note_version(part: Path, response: requests.Response) -> None:
    tag = response.headers.get("ETag", "W/")  # W/ are versions of one meaning, and perhaps of other bytes
    version = response.headers.get("Last-Modified") if tag.startswith("W/") else tag
    if version is None:
        _version_file(part).unlink(missing_ok=True)
    else:
        _version_file(part).write_text(version)


def _is_other_range(response: requests.Response, done: int) -> bool:
    """Whether the server was asked to go on where the part ends, and cannot; then the part is of no use."""
    if response.status_code == http.HTTPStatus.PARTIAL_CONTENT:
        return done > 0 and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
    return done > 0 and response.status_code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def _check_answer(url: str, response: requests.Response) -> None:
    if not response.ok:
        raise InputError(
            f"{_without_password(url)} answers {response.status_code} {response.reason}; "
            f"the file may have moved: {_YOURSELF}"
        )
    if response.headers.get("Content-Type", "").startswith("text/html"):  # what a closed site answers to everything
        raise InputError(f"{_without_password(url)} answers with a web page in place of the file; {_YOURSELF}")


@contextlib.contextmanager
def _progress(name: str, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar with speed and time left on a terminal, one plain line elsewhere."""
    console = Screen(stderr=True)
    if not console.is_terminal:
        print(f"downloading {name}" + (f" ({decimal(total)})" if total is not None else ""), file=sys.stderr)
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bar:
        yield partial(bar.advance, bar.add_task(name, completed=done, total=total))


def _without_password(url: str) -> str:
    """The address for a message: an index may be set up with a name and a password in it."""
    return urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()


def fetch_from_package_index(project: str, filename: str, sha256: str, folder: Path) -> Path:
    """Fetch one file of a project from the Python package index that this machine is set up for; nothing is run."""
    # Only now: it takes half a second, which every command would wait for.
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

    target = folder / filename
    if target.exists():
        return target
    try:
        with PyPISimple(endpoint=_index_address()) as index:
            packages = index.get_project_page(project, timeout=_TIMEOUT).packages
    except NoSuchProjectError:
        raise InputError(f"the Python package index has no project {project}; {_YOURSELF} ({filename})") from None
    except (requests.RequestException, UnsupportedContentTypeError):
        raise InputError(
            f"the Python package index cannot be reached; check the network, or {_YOURSELF} ({filename})"
        ) from None
    for package in packages:
        if package.filename == filename:
            return download(package.url, target, sha256=sha256)
    raise InputError(f"the Python package index has no file {filename} of {project}; {_YOURSELF}")


def _index_address() -> str:
    """The index that pip would use: from the environment, from pip's configuration, or the common one."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    if address := os.environ.get("PIP_INDEX_URL"):
        return address
    # `pip config get` looks into one file alone; the list holds what counts of all of them, as key='value'.
    question = [sys.executable, "-m", "pip", "config", "list"]
    answer = subprocess.run(question, capture_output=True, text=True, check=False)  # pip itself may be absent
    settings = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
    return settings.get("global.index-url", "").strip("'\"") or PYPI_SIMPLE_ENDPOINT


def extract(archive: Path, members: Sequence[str], folder: Path) -> list[Path]:
    """Unpack the named members of a .zip, .whl or .tar.gz into a folder, each under the last part of its name.

    An archive in which any name leads out of the folder is refused as a whole, and so is a link in place of a file.
    """
    targets = {member: folder / PurePosixPath(member).name for member in members}
    missing = set(members)
    try:
        for name, is_file, opened in _entries(archive):
            if _leads_out(name):
                raise InputError(f"{archive} is refused: its member {name!r} would be written outside the folder")
            member = name.removeprefix("./")
            if member not in targets:
                continue
            content = opened() if is_file else None
            if content is None:
                raise InputError(f"{archive} is refused: its member {name!r} is a link or a device, not a file")
            with content, replacing(targets[member]) as file:
                shutil.copyfileobj(content, file)
            missing.discard(member)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive} is a damaged archive ({error}); delete it and fetch it again") from None
    if missing:
        raise InputError(f"{archive} has no member {min(missing)}; it is not the expected archive")
    return list(targets.values())


def _entries(archive: Path) -> Iterator[tuple[str, bool, Callable[[], IO[bytes] | None]]]:
    """Every member in the archive's order: its name, whether it is a regular file, and how to open it."""
    if archive.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archive was not made on Unix
                yield info.filename, kind in (0, stat.S_IFREG), partial(packed.open, info)
    else:
        with tarfile.open(archive) as unpacked:
            for entry in unpacked:
                yield entry.name, entry.isfile(), partial(unpacked.extractfile, entry)


def _leads_out(name: str) -> bool:
    path = PureWindowsPath(name)  # knows both separators and drive letters
    return path.anchor != "" or ".." in path.parts
