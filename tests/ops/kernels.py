"""Which way operators go in a test: by their kernels, or by their twins."""

from __future__ import annotations

import types
import warnings

import pytest
import torch

from qknorm.ops import _build, _dispatch


def kernels_are_built() -> bool:
    """Build them if they are not; without a compiler only the twins can be tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _dispatch.load_kernels()
    return _build.load() is not None


needs_kernel = pytest.mark.skipif(not kernels_are_built(), reason="no C++ compiler: the kernels cannot be built")


def use_twins(monkeypatch: pytest.MonkeyPatch, *modules: types.ModuleType) -> None:
    """Let the functions of these modules call the twins of their operators."""
    for module in modules:
        for name, operator in vars(module).items():
            if isinstance(operator, _dispatch.Operator):
                twin = operator.overload.name().removeprefix("qknorm::") + "_plain"
                monkeypatch.setattr(module, name, getattr(torch.ops.qknorm, twin).default)


def use_route(route: str, monkeypatch: pytest.MonkeyPatch, *modules: types.ModuleType) -> None:
    """Let the functions of these modules go the way of a "kernel" or of its "twin"."""
    if route == "twin":
        use_twins(monkeypatch, *modules)
    elif not kernels_are_built():
        pytest.skip("no C++ compiler: the kernels cannot be built")
