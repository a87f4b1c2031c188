"""Counting is done once for a prepared corpus: its table lies beside it, as translations.safetensors."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy import sparse

from qknorm.counting import alignments
from qknorm.counting.vectors import fill_in_parts, starting_vectors
from qknorm.data.prepared import Prepared
from qknorm.data.textfiles import replacing
from qknorm.screen import Screen

_FORMAT = 1  # of the file and of how it is counted; another number makes all tables anew
_PARTS = ("data", "indices", "indptr")  # of a CSR matrix


def counted(prepared: Prepared, dim: int, seed: int, console: Screen) -> NDArray[np.float32]:
    """(pieces, dim): the vectors that the pieces of a prepared corpus start from."""
    table = translations(prepared, console)
    directions = [text.train.encoded for text in prepared.texts]
    vectors = starting_vectors(directions, table, len(prepared.subwords), dim, seed)
    fill_in_parts(vectors, prepared.subwords.pieces, directions)
    return vectors


def translations(prepared: Prepared, console: Screen) -> sparse.csr_matrix:
    """Which pieces translate which, as `count_translations` has it: found beside the corpus, or counted and kept."""
    path = prepared.folder / "translations.safetensors"
    with FileLock(path.with_suffix(".lock")):  # several processes of one training run come here together
        table = _read(path, len(prepared.subwords))
        if table is None:
            table = _count(prepared, console)
            _write(path, table)
    return table


def _count(prepared: Prepared, console: Screen) -> sparse.csr_matrix:
    with counting_bar(console) as progress:
        directions = [text.train.encoded for text in prepared.texts]
        return alignments.count_translations(directions, len(prepared.subwords), progress)


@contextlib.contextmanager
def counting_bar(console: Screen) -> Iterator[alignments.Progress]:
    """A bar where a person watches; nothing elsewhere."""
    columns = (TextColumn("counting word pairs"), BarColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal or console.quiet
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _write(path: Path, table: sparse.csr_matrix) -> None:
    parts = {name: getattr(table, name) for name in _PARTS}
    with replacing(path) as file:
        file.write(save({**parts, "digest": _digest(parts, table.shape[0])}))


def _read(path: Path, pieces: int) -> sparse.csr_matrix | None:
    """None if the file is not there, is damaged, or was counted in another way."""
    try:
        arrays = load(path.read_bytes())
        parts = {name: arrays[name] for name in _PARTS}
        if np.array_equal(arrays["digest"], _digest(parts, pieces)):
            return sparse.csr_matrix(tuple(parts.values()), (pieces, pieces))
    except (OSError, SafetensorError, KeyError):
        pass
    return None


def _digest(parts: dict[str, NDArray[np.generic]], pieces: int) -> NDArray[np.uint8]:
    digest = hashlib.sha256(repr((_FORMAT, pieces)).encode())
    for part in parts.values():
        digest.update(np.ascontiguousarray(part).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
