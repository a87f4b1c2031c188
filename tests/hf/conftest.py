from __future__ import annotations

import pytest
import torch


@pytest.fixture
def float64_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers takes norms in float32, also of float64: here float32 means float64, to compare all digits."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
