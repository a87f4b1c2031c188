"""Where everything is kept that can be made or fetched again: corpora, downloads, compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$QKNORM_CACHE, else the folder `qknorm` of the user's cache."""
    if chosen := os.environ.get("QKNORM_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qknorm"
