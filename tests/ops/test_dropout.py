"""Dropout: the kernels and their twins in torch's operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import dropout as operators
from qknorm.ops.dropout import add_dropped, dropout, relu_dropout
from tests.ops.kernels import use_route

P = 0.3

WITH_P: dict[str, Callable[[Tensor, float], Tensor]] = {
    "dropout": lambda x, p: dropout(x, p, True),
    "add_dropped": lambda x, p: add_dropped(torch.zeros_like(x), x, p, True),
    "relu_dropout": lambda x, p: relu_dropout(x, p, True),
}


@pytest.fixture(params=["kernel", "twin"])
def _route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_route(request.param, monkeypatch, operators)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", WITH_P)
def test_dropout_zeroes_its_share_and_scales_the_rest(name: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(300, 1001) + 0.5
    out = WITH_P[name](x, P)
    dropped = out == 0
    assert abs(float(dropped.float().mean()) - P) < 5 * (P * (1 - P) / x.numel()) ** 0.5
    assert torch.allclose(out[~dropped], x[~dropped] / (1 - P))


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", WITH_P)
def test_the_gradient_passes_where_the_value_passed(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 100, requires_grad=True)
    out = WITH_P[name](x, P)
    (gradient,) = torch.autograd.grad(out, x, torch.full_like(x, 2.0))
    assert torch.equal(gradient == 0, out == 0)
    torch.testing.assert_close(gradient[out != 0], torch.full_like(gradient, 2 / (1 - P))[out != 0])


def test_nothing_is_dropped_outside_training() -> None:
    x = torch.randn(3, 4)
    assert dropout(x, P, False) is x
    assert torch.equal(add_dropped(x, x, P, False), 2 * x)
    assert torch.equal(relu_dropout(x, P, False), F.relu(x))
