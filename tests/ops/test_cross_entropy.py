"""The loss over a vocabulary: the kernel and its twin in torch's operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from qknorm.ops import cross_entropy as operators
from qknorm.ops.cross_entropy import linear_cross_entropy
from tests.ops.kernels import needs_kernel, use_route


@pytest.fixture(params=["kernel", "twin"])
def _route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_route(request.param, monkeypatch, operators)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (600, 1000), (1100, 37)])
def test_loss_and_gradients_are_those_of_float64(rows: int, classes: int, smoothing: float) -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(rows, 24, requires_grad=True), torch.randn(classes, 24, requires_grad=True)
    bias, target = torch.randn(classes, requires_grad=True), torch.randint(classes, (rows,))
    inputs = (states, weight, bias)
    loss = linear_cross_entropy(*inputs, target, smoothing)
    expected = F.cross_entropy(F.linear(*(x.double() for x in inputs)), target, label_smoothing=smoothing)
    assert abs(float(loss.detach() - expected.detach())) < 1e-5 * float(expected)
    actual, right = (torch.autograd.grad(3 * x, inputs) for x in (loss, expected))
    torch.testing.assert_close(actual, right, atol=2e-6, rtol=1e-4)


@needs_kernel
def test_a_loss_that_is_no_number_is_not_hidden() -> None:
    states = torch.randn(3, 4)
    states[1, 2] = torch.nan
    assert linear_cross_entropy(states, torch.randn(9, 4), torch.zeros(9), torch.zeros(3).long(), 0.1).isnan()


def loss_of(target: Tensor, smoothing: float = 0.1, **others: Tensor) -> Tensor:
    arguments = {"states": torch.randn(600, 8), "weight": torch.randn(50, 8), "bias": torch.zeros(50)} | others
    return linear_cross_entropy(**arguments, target=target, label_smoothing=smoothing)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("missing", [-1, -100, 50, 2**40])
@pytest.mark.parametrize("row", [3, 599])
def test_a_class_that_does_not_exist_is_refused(missing: int, row: int) -> None:
    target = torch.zeros(600, dtype=torch.long)
    target[row] = missing
    with pytest.raises(ValueError, match=f"target holds class {missing}, but the classes are 0 to 49"):
        loss_of(target)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize(
    "wrong",
    [
        *({"target": torch.zeros(600, dtype=dtype)} for dtype in (torch.int32, torch.uint8, torch.float32)),
        {"target": torch.zeros(599, dtype=torch.long)},
        {"target": torch.zeros(600, 1, dtype=torch.long)},
        {"bias": torch.zeros(1)},
        {"weight": torch.zeros(50, 7)},
        {"states": torch.zeros(4, 150, 8)},
        {"smoothing": 1.5},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_does_not_belong_together_is_refused(wrong: dict[str, Any]) -> None:
    shapes = r"the loss needs \(rows, dim\), \(classes, dim\), \(classes,\) and \(rows,\)"
    types, shares = r"target must hold whole numbers of type torch\.int64", "label_smoothing must be between 0 and 1"
    with pytest.raises((ValueError, TypeError), match=f"{shapes}|{types}|{shares}"):
        loss_of(**{"target": torch.zeros(600, dtype=torch.long)} | wrong)


def test_classes_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match="target is on meta, but what it belongs to is on cpu"):
        loss_of(torch.zeros(600, dtype=torch.long, device="meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fake_tensors_have_a_loss(dtype: torch.dtype) -> None:
    """In float16 torch's operations do it, and the classes, which have no values, are not looked at."""
    with FakeTensorMode():
        assert loss_of(torch.zeros(600, dtype=torch.long), states=torch.randn(600, 8, dtype=dtype)).shape == ()
