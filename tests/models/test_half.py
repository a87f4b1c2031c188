"""Products in bfloat16: what float64 gives, but for rounding; all else untouched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qknorm.models.half import use_half_products
from qknorm.models.layers import VocabularyLoss

# bfloat16 has eight bits: each factor is rounded by 2^-9 at most, and so is the product.
TOLERANCE = 0.02


class Model(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.linear, self.norm, self.loss = nn.Linear(32, 24, bias=bias), nn.LayerNorm(24), VocabularyLoss()

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        loss: Tensor = self.loss(self.norm(self.linear(x)).flatten(0, 1), *others)
        return loss


@pytest.mark.parametrize("part", ["linear", "linear without bias", "loss"])
def test_values_and_gradients_are_those_of_exact_products_but_for_rounding(part: str) -> None:
    torch.manual_seed(0)
    half = Model(bias=part == "linear")
    exact = copy.deepcopy(half).double()
    use_half_products(half)
    outcomes = []
    for model, dtype in ((exact, torch.float64), (half, torch.float32)):
        generator = torch.Generator().manual_seed(1)
        x, weight, bias = (
            torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in ((700, 32), (50, 32), 50)
        )
        if part == "loss":
            inputs = [x, weight, bias]
            value = model.loss(*inputs, torch.arange(700) % 50, 0.1)
        else:
            inputs = [x, *model.linear.parameters()]
            value = model.linear(x)
        assert value.dtype == dtype
        outcomes.append([value, *torch.autograd.grad(value.square().mean(), inputs)])
    for expected, found in zip(*outcomes, strict=True):
        assert not torch.equal(found.double(), expected)
        torch.testing.assert_close(
            found.double(), expected, rtol=TOLERANCE, atol=TOLERANCE * expected.abs().max().item()
        )


def test_a_model_keeps_its_parameters_and_their_names() -> None:
    model = Model()
    before, state = dict(model.named_parameters()), torch.get_rng_state()
    use_half_products(model)
    after = dict(model.named_parameters())
    assert list(before) == list(after)
    assert all(before[name] is after[name] for name in before)
    assert torch.equal(torch.get_rng_state(), state)
    assert type(model.norm) is nn.LayerNorm


def test_a_loss_that_is_only_reported_is_exact() -> None:
    inputs = torch.randn(9, 32), torch.randn(50, 32), torch.randn(50), torch.randint(50, (9,)), 0.0
    model = Model()
    use_half_products(model)
    assert model.loss(*inputs) != VocabularyLoss()(*inputs)
    assert model.eval().loss(*inputs) == VocabularyLoss()(*inputs)
