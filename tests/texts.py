"""Texts that are too large for the repository, or not ours to give away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "QKNORM_TEST_TEXTS"


def benchmark_text(name: str) -> Path:
    """A file or folder of the benchmark texts, or the test is skipped where there are none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"needs the benchmark texts: {VARIABLE} names their folder (see CONTRIBUTING.md)")
    result = Path(folder, name)
    assert result.exists(), f"{VARIABLE} is {folder}, which has no {name}"
    return result
