from __future__ import annotations

import ctypes

import pytest

from qknorm.memory import keep_freed_memory


def test_a_system_without_glibc_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    keep_freed_memory()


def test_glibc_is_told_to_map_nothing_and_return_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}

    class Glibc:
        mallopt = staticmethod(told.__setitem__)

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Glibc)
    keep_freed_memory()
    assert told == {-4: 0, -1: 2**31 - 1}
