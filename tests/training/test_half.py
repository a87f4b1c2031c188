"""Products in bfloat16: what float64 gives, but for rounding; all else untouched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qknorm.models.layers import VocabularyLoss
from qknorm.training.half import HalfLinear, HalfVocabularyLoss, use_half_products

# bfloat16 has eight bits: each factor is rounded by 2^-9 at most, and so is the product.
TOLERANCE = 0.02


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_a_linear_layer(bias: bool) -> None:
    plain = nn.Linear(32, 24, bias=bias).double()
    half = HalfLinear(32, 24, bias=bias)
    half.load_state_dict(plain.state_dict())
    x = torch.randn(3, 5, 32, dtype=torch.float64, requires_grad=True)
    rounded = x.detach().float().requires_grad_()
    expected, out = plain(x), half(rounded)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)
    expected.square().mean().backward()
    out.square().mean().backward()
    assert x.grad is not None
    assert rounded.grad is not None
    torch.testing.assert_close(rounded.grad.double(), x.grad, rtol=TOLERANCE, atol=TOLERANCE)
    for ours, theirs in zip(half.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=TOLERANCE, atol=TOLERANCE)


def test_it_really_rounds() -> None:
    """1 + 2^-10 is 1 in bfloat16, so a product with it loses what a float32 product keeps."""
    half = HalfLinear(1, 1, bias=False)
    nn.init.ones_(half.weight)
    assert half(torch.tensor([[1 + 2**-10]])).item() == 1.0


def test_a_model_keeps_its_weights_and_names() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    use_half_products(model)
    assert [type(module) for module in model] == [HalfLinear, nn.LayerNorm, HalfLinear]
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_loss_and_its_gradients_are_those_of_the_exact_one() -> None:
    torch.manual_seed(0)
    states, weight, bias = torch.randn(700, 32), torch.randn(50, 32), torch.randn(50)
    target = torch.randint(50, (700,))
    outcomes = []
    for loss, dtype in ((VocabularyLoss(), torch.float64), (HalfVocabularyLoss(), torch.float32)):
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (states, weight, bias)]
        value = loss(*inputs, target, 0.1)
        assert value.dtype == dtype
        outcomes.append([value, *torch.autograd.grad(value, inputs)])
    for exact, half in zip(*outcomes, strict=True):
        assert half.dtype == torch.float32
        torch.testing.assert_close(half.double(), exact, rtol=TOLERANCE, atol=TOLERANCE * exact.abs().max().item())


def test_a_loss_that_is_only_reported_is_exact() -> None:
    inputs = torch.randn(9, 32), torch.randn(50, 32), torch.randn(50), torch.randint(50, (9,)), 0.0
    model = nn.Sequential(VocabularyLoss())
    use_half_products(model)
    assert model[0](*inputs) != VocabularyLoss()(*inputs)
    assert model.eval()[0](*inputs) == VocabularyLoss()(*inputs)
