from __future__ import annotations

import torch

from qknorm.models.layers import sinusoids
from tests.models.test_translator import model


def test_a_factor_that_is_fixed_or_absent_does_not_learn() -> None:
    for scale, value in (("fixed", 5.0), ("absent", 1.0)):
        attention = model(scale=scale, scale_init=5.0).decoder[0].attention
        assert not attention.q_norm.scale.requires_grad  # type: ignore[union-attr]
        assert float(attention.q_norm.scale) == value  # type: ignore[union-attr, arg-type]


def test_positions_are_sines_then_cosines() -> None:
    table = sinusoids(5, 8)
    assert table[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert torch.allclose(
        table[1, [0, 4]],
        torch.tensor([1.0, 1.0]).sin() * torch.tensor([1, 0]) + torch.tensor([1.0, 1.0]).cos() * torch.tensor([0, 1]),
    )
    assert torch.equal(sinusoids(2, 8, start=3), table[3:])
