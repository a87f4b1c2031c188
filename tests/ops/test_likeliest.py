from __future__ import annotations

import pytest
import torch

from qknorm.ops import likeliest as of_likeliest
from qknorm.ops import shared_attention
from qknorm.ops.likeliest import likeliest
from tests.ops.kernels import needs_kernel, use_twins


@pytest.mark.parametrize("use_kernel", [pytest.param(True, marks=needs_kernel), False])
@pytest.mark.parametrize(("rows", "classes", "k"), [(1, 3, 3), (7, 1000, 6), (64, 5003, 6)])
def test_the_likeliest_are_those_of_a_sort(
    rows: int, classes: int, k: int, use_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not use_kernel:
        use_twins(monkeypatch, of_likeliest, shared_attention)
    torch.manual_seed(0)
    logits = torch.randn(rows, classes) * 4
    values, indices, sums = likeliest(logits, k)
    expected, order = logits.double().log_softmax(-1).sort(descending=True)
    assert torch.equal(indices, order[:, :k])
    assert torch.allclose(values.double(), expected[:, :k], atol=1e-5)
    assert torch.allclose(sums.double(), logits.double().logsumexp(-1), atol=1e-5)


@needs_kernel
def test_of_equal_pieces_the_first_is_taken() -> None:
    _, indices, _ = likeliest(torch.zeros(2, 300), 5)
    assert indices.tolist() == [[0, 1, 2, 3, 4]] * 2


@needs_kernel
def test_impossible_pieces_stay_impossible() -> None:
    logits = torch.full((1, 100), -torch.inf)
    logits[0, 70] = 2.0
    values, indices, _ = likeliest(logits, 3)
    assert indices[0, 0] == 70
    torch.testing.assert_close(values, torch.tensor([[0.0, -torch.inf, -torch.inf]]), atol=1e-6, rtol=0)
