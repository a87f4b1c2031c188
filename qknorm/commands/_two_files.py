"""Options of two files each that may be given several times: typer has either, not both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from qknorm.errors import InputError

OPTIONS = ("--related", "--also")
_BETWEEN = "\0"  # which no argument of a program can hold


class TwoFilesCommand(TyperCommand):
    """A command for which an option's two files are one value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_joined(args)))


def _joined(arguments: Iterable[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        option, _, first = argument.partition("=")
        if option in OPTIONS:
            files = [*([first] if first else []), *islice(rest, 1 if first else 2)]
            yield f"{option}={_BETWEEN.join(files)}"
        else:
            yield argument


def two_files(value: str) -> tuple[Path, Path]:
    """What such an option was given, each time."""
    files = [Path(name) for name in value.split(_BETWEEN) if name]
    if len(files) != 2 or any(file.name.startswith("--") for file in files):
        raise InputError(f"{' and '.join(OPTIONS)} take two files each, such as {OPTIONS[0]} pt.txt en.txt")
    return files[0], files[1]
