"""Lp normalisation with rotary positions, by every route; attention/test_lp.py has the normalisation itself."""

from __future__ import annotations

import pytest
import torch

from qknorm.ops import _dispatch, lp
from qknorm.ops.lp import scaled_lp_normalize
from qknorm.ops.rotary import Pairing, Rotary, turned
from tests.attention import reference
from tests.ops.kernels import use_route
from tests.ops.test_rotary import PAIRINGS, tables_of, turned_as_complex_numbers

EPS = 1e-12


@pytest.fixture(params=["kernel", "twin", "formula"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "formula":
        monkeypatch.setattr(_dispatch, "is_left_to_torch", lambda *_: True)
    else:
        use_route(request.param, monkeypatch, lp)
    return str(request.param)


every_route = pytest.mark.usefixtures("route")


@every_route
@PAIRINGS
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, torch.inf])
@pytest.mark.parametrize("planes", [8, 3])
def test_rows_are_normalised_over_all_entries_and_then_turned(p: float, planes: int, pairing: Pairing) -> None:
    x = torch.randn(2, 5, 3, 16).transpose(1, 2).requires_grad_()
    g, drawn, dy = torch.randn(3, requires_grad=True), torch.randn(5, planes), torch.randn(2, 3, 5, 16)
    y = scaled_lp_normalize(x, g, p, EPS, tables_of(drawn, pairing))
    wide_x, wide_g = (tensor.detach().double().requires_grad_() for tensor in (x, g))
    expected = turned_as_complex_numbers(
        wide_g.view(-1, 1, 1) * reference.normalize(wide_x, p), drawn.double(), pairing
    )
    actual = (y, *torch.autograd.grad(y, (x, g), dy))
    for ours, theirs in zip(
        actual, (expected, *torch.autograd.grad(expected, (wide_x, wide_g), dy.double())), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=2e-5)


@every_route
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_tables_may_have_any_precision(dtype: torch.dtype) -> None:
    x, drawn = torch.randn(2, 3, 5, 16), torch.randn(5, 8)
    cos, sin, _ = tables_of(drawn, "half")
    narrow = Rotary(cos.to(dtype), sin.to(dtype))
    wide = Rotary(narrow.cos.double(), narrow.sin.double())
    result = scaled_lp_normalize(x, None, 2.0, EPS, narrow)
    assert result.dtype == x.dtype
    torch.testing.assert_close(
        result.double(), scaled_lp_normalize(x.double(), None, 2.0, EPS, wide), rtol=0, atol=1e-6
    )


def test_angles_that_learn_receive_their_gradient() -> None:
    x, cos, sin = torch.randn(2, 3, 5, 8), *torch.randn(2, 5, 8, requires_grad=True).unbind()
    actual = torch.autograd.grad(scaled_lp_normalize(x, None, 2.0, EPS, Rotary(cos, sin)).square().sum(), (cos, sin))
    expected = torch.autograd.grad(turned(reference.normalize(x, 2.0), Rotary(cos, sin)).square().sum(), (cos, sin))
    torch.testing.assert_close(actual, expected)


def test_the_operator_itself_refuses_a_gradient_of_angles() -> None:
    cos, sin = torch.randn(2, 5, 8, requires_grad=True).unbind()
    y = torch.ops.qknorm.lp_normalize(torch.randn(2, 3, 5, 8), None, 2.0, EPS, cos, sin, False)[0]
    with pytest.raises(RuntimeError, match="no gradient for cos and sin"):
        y.sum().backward()


def test_vmap_passes_through_the_turn() -> None:
    x, rotary = torch.randn(4, 2, 3, 5, 8), tables_of(torch.randn(5, 4), "interleaved")
    result = torch.func.vmap(lambda x: scaled_lp_normalize(x, None, 2.0, EPS, rotary))(x)
    torch.testing.assert_close(result[1], scaled_lp_normalize(x[1], None, 2.0, EPS, rotary))
