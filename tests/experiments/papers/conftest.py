"""A corpus and a table of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.caches import new_cache
from tests.experiments.papers.plans import OWN
from tests.phrases import write_phrases


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
