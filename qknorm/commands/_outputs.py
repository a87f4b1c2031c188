"""What commands write to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from qknorm.errors import InputError


def refuse_to_replace(paths: Iterable[Path], force: bool) -> None:
    """An InputError where an output would replace a file, unless by `force`, or lie in a folder that is not there."""
    for path in paths:
        if path.is_file() and not force:
            raise InputError(f"{path} exists already; choose another name, or overwrite it with --force")
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
