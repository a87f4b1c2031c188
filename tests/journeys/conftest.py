"""The command without a process of its own, for tests that call it often."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from qknorm.cli import main


class Done(NamedTuple):
    """What a call of the command left behind."""

    code: int
    out: str
    errors: str


class Command(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done: ...


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls `qknorm` with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)

    def call(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["qknorm", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            main()
        out, errors = capfdbinary.readouterr()
        assert isinstance(exit_.value.code, int)
        return Done(exit_.value.code, out.decode(), errors.decode())

    return call
