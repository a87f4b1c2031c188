from __future__ import annotations

import torch

from qknorm.models.layers import sinusoids


def test_positions_are_sines_then_cosines() -> None:
    table = sinusoids(5, 8)
    assert table[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert torch.allclose(
        table[1, [0, 4]],
        torch.tensor([1.0, 1.0]).sin() * torch.tensor([1, 0]) + torch.tensor([1.0, 1.0]).cos() * torch.tensor([0, 1]),
    )
    assert torch.equal(sinusoids(2, 8, start=3), table[3:])
