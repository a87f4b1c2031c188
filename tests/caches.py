"""Cache folders of tests: each its own, but for the kernels, which take long to compile."""

from __future__ import annotations

from pathlib import Path

from qknorm.cache import cache_folder

_KERNELS = cache_folder() / "kernels"


def new_cache(folder: Path) -> str:
    """Make a cache folder with the kernels of all, for $QKNORM_CACHE."""
    folder.mkdir(parents=True, exist_ok=True)
    _KERNELS.mkdir(parents=True, exist_ok=True, mode=0o700)
    kernels = folder / "kernels"
    if not kernels.exists():
        kernels.symlink_to(_KERNELS)
    return str(folder)
