"""What `--minutes` takes, of whichever command."""

from __future__ import annotations

import math

from qknorm.errors import InputError


def checked_minutes(minutes: float | None) -> float | None:
    """A callback of the option, so that no command begins with minutes that mean nothing."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise InputError(f"--minutes must be more than 0 and finite, not {minutes:g}")
    return minutes
