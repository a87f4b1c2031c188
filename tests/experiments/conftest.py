"""A folder with a small sweep, which is also the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps import TINY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a line of some text\n" * 30)
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path
