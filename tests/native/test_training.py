"""Dropout and loss: the kernels and their twins in torch's operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.native import training

needs_kernel = pytest.mark.skipif(training._kernels() is None, reason="no C++ compiler: the kernels cannot be built")
P = 0.3

DROPPING: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: training.dropout(x, P, True),
    "add_dropped": lambda x: training.add_dropped(torch.zeros_like(x), x, P, True),
    "relu_dropout": lambda x: training.relu_dropout(x, P, True),
}


@pytest.fixture(params=["kernel", "operations"])
def _route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "operations":
        monkeypatch.setattr(training, "_kernels", lambda: None)
    elif training._kernels() is None:
        pytest.skip("no C++ compiler: the kernels cannot be built")


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", DROPPING)
def test_dropout_zeroes_its_share_and_scales_the_rest(name: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(300, 1001) + 0.5
    out = DROPPING[name](x)
    dropped = out == 0
    assert abs(float(dropped.float().mean()) - P) < 5 * (P * (1 - P) / x.numel()) ** 0.5
    assert torch.allclose(out[~dropped], x[~dropped] / (1 - P))


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", DROPPING)
def test_the_gradient_passes_where_the_value_passed(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 100, requires_grad=True)
    out = DROPPING[name](x)
    (gradient,) = torch.autograd.grad(out, x, torch.full_like(x, 2.0))
    assert torch.equal(gradient == 0, out == 0)
    torch.testing.assert_close(gradient[out != 0], torch.full_like(gradient, 2 / (1 - P))[out != 0])


@needs_kernel
def test_neighbours_and_calls_are_dropped_independently() -> None:
    torch.manual_seed(0)
    first, second = (training.dropout(torch.ones(1_000_003), 0.5, True) - 1 for _ in range(2))
    assert abs(float((first * second).mean())) < 5e-3
    for distance in (1, 2, 16, 1024):
        assert abs(float((first[:-distance] * first[distance:]).mean())) < 5e-3


@needs_kernel
def test_the_same_seed_drops_the_same_whatever_the_threads() -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(5)
            results.append(training.dropout(torch.ones(100_000), P, True))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_nothing_is_dropped_outside_training() -> None:
    x = torch.randn(3, 4)
    assert training.dropout(x, P, False) is x
    assert torch.equal(training.add_dropped(x, x, P, False), 2 * x)
    assert torch.equal(training.relu_dropout(x, P, False), F.relu(x))


def test_a_residual_gets_its_gradient() -> None:
    residual, x = torch.randn(2, 5, 7).unbind(0)
    residual.requires_grad_()
    out = training.add_dropped(residual, x, P, True)
    assert torch.equal(torch.autograd.grad(out.sum(), residual)[0], torch.ones(5, 7))


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (600, 1000), (1100, 37)])
def test_loss_and_gradients_are_those_of_float64(rows: int, classes: int, smoothing: float) -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(rows, 24, requires_grad=True), torch.randn(classes, 24, requires_grad=True)
    bias, wanted = torch.randn(classes, requires_grad=True), torch.randint(classes, (rows,))
    inputs = (states, weight, bias)
    loss = training.linear_cross_entropy(*inputs, wanted, smoothing)
    expected = F.cross_entropy(F.linear(*(x.double() for x in inputs)), wanted, label_smoothing=smoothing)
    assert abs(float(loss.detach() - expected.detach())) < 1e-5 * float(expected)
    found, right = (torch.autograd.grad(3 * x, inputs) for x in (loss, expected))
    for ours, theirs in zip(found, right, strict=True):
        assert torch.allclose(ours, theirs, atol=2e-6, rtol=1e-4)


@needs_kernel
def test_a_loss_that_is_no_number_is_not_hidden() -> None:
    states = torch.randn(3, 4)
    states[1, 2] = torch.nan
    assert training.linear_cross_entropy(states, torch.randn(9, 4), torch.zeros(9), torch.zeros(3).long(), 0.1).isnan()


def loss_of(wanted: Tensor, smoothing: float = 0.1, **others: Tensor) -> Tensor:
    arguments = {"states": torch.randn(600, 8), "weight": torch.randn(50, 8), "bias": torch.zeros(50)} | others
    return training.linear_cross_entropy(**arguments, wanted=wanted, label_smoothing=smoothing)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("missing", [-1, -100, 50, 2**40])
@pytest.mark.parametrize("row", [3, 599])
def test_a_class_that_does_not_exist_is_refused(missing: int, row: int) -> None:
    wanted = torch.zeros(600, dtype=torch.long)
    wanted[row] = missing
    with pytest.raises(ValueError, match=f"wanted holds class {missing}, but the classes are 0 to 49"):
        loss_of(wanted)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32])
def test_classes_of_another_type_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"wanted must hold whole numbers of type torch.int64, not {dtype}"):
        loss_of(torch.zeros(600, dtype=dtype))


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize(
    "others",
    [
        {"wanted": torch.zeros(599, dtype=torch.long)},
        {"wanted": torch.zeros(600, 1, dtype=torch.long)},
        {"bias": torch.zeros(1)},
        {"weight": torch.zeros(50, 7)},
        {"states": torch.zeros(4, 150, 8)},
    ],
    ids=lambda others: next(iter(others)),
)
def test_shapes_that_do_not_belong_together_are_refused(others: dict[str, Tensor]) -> None:
    others = dict(others)
    with pytest.raises(ValueError, match=r"the loss needs \(rows, dim\), \(classes, dim\), \(classes,\) and \(rows,\)"):
        loss_of(others.pop("wanted", torch.zeros(600, dtype=torch.long)), 0.1, **others)


@pytest.mark.usefixtures("_route")
def test_more_smoothing_than_there_is_to_spread_is_refused() -> None:
    with pytest.raises(ValueError, match=r"label_smoothing must be between 0 and 1, not 1\.5"):
        loss_of(torch.zeros(600, dtype=torch.long), smoothing=1.5)


def test_classes_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match="wanted is on meta, but what it belongs to is on cpu"):
        loss_of(torch.zeros(600, dtype=torch.long, device="meta"))


WITH_P: dict[str, Callable[[Tensor, float], Tensor]] = {
    "dropout": lambda x, p: training.dropout(x, p, True),
    "add_dropped": lambda x, p: training.add_dropped(x, x, p, True),
    "relu_dropout": lambda x, p: training.relu_dropout(x, p, True),
}


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("p", [-0.1, 1.5, torch.nan])
@pytest.mark.parametrize("name", WITH_P)
def test_a_share_that_is_not_one_is_refused(name: str, p: float) -> None:
    with pytest.raises(ValueError, match=f"p must be between 0 and 1, not {p}"):
        WITH_P[name](torch.randn(3, 4), p)


@pytest.mark.usefixtures("_route")
@pytest.mark.parametrize("name", DROPPING)
def test_a_gradient_of_zeros_without_memory_gives_zeros(name: str) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    DROPPING[name](x).backward(torch._efficientzerotensor((3, 4)))
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros(3, 4))


@needs_kernel
@pytest.mark.parametrize("name", DROPPING)
def test_an_input_without_memory_is_refused(name: str) -> None:
    x = torch.randn(3, 4)
    x.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"the memory of a tensor of shape \(3, 4\) was freed"):
        WITH_P[name](x, P)


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_compiles_to_one_graph(name: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(DROPPING[name], fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(30, 40)).shape == (30, 40)


def test_kernels_that_are_missing_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_kernels", lambda: None)
    with pytest.raises(RuntimeError, match="needs the CPU kernels"):
        training._dropped(torch.ones(3), None, P, 0)
