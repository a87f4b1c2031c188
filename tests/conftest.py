"""Settings for all tests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

# The first example of a property may compile a kernel, and the machine may be busy: time is measured elsewhere.
settings.register_profile("qknorm", deadline=None, print_blob=True)
settings.load_profile("qknorm")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
