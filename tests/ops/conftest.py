"""Each operator as a kernel and as its twin."""

from __future__ import annotations

import pytest

from qknorm.ops import shared_attention
from tests.ops.kernels import kernels_are_built, use_twins


@pytest.fixture(params=["kernel", "twin"])
def _route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        use_twins(monkeypatch, shared_attention)
    elif not kernels_are_built():
        pytest.skip("no C++ compiler: the kernels cannot be built")
