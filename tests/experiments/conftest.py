"""A folder with a small sweep, which is also the working directory; a corpus and a table of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.caches import new_cache
from tests.experiments.plans import OWN
from tests.phrases import write_phrases
from tests.sweeps import TINY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("a line of some text\n" * 30)
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


@pytest.fixture
def talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    (tmp_path / "talks").mkdir()
    write_phrases(tmp_path / "talks", train=200, held_out=16)
    return str(tmp_path / "talks")


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.yaml").write_text(OWN)
    return str(tmp_path / "own.yaml")
