from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.cache import cache_folder


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.delenv("QKNORM_CACHE", raising=False)
    assert cache_folder() == Path("/elsewhere/qknorm")
    monkeypatch.setenv("QKNORM_CACHE", "~/mine")
    assert cache_folder() == Path.home() / "mine", "before any other"
    monkeypatch.delenv("QKNORM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/qknorm")
