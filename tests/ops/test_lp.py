"""Lp normalisation with rotary positions, by every route; attention/test_lp.py has the normalisation itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qknorm.ops import _dispatch, lp
from qknorm.ops.lp import Rotation, rotated, scaled_lp_normalize
from tests.attention import reference
from tests.ops.kernels import use_route

EPS = 1e-12
PAIRINGS = pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])


@pytest.fixture(params=["kernel", "twin", "formula"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "formula":
        monkeypatch.setattr(_dispatch, "is_left_to_torch", lambda *_: True)
    else:
        use_route(request.param, monkeypatch, lp)
    return str(request.param)


every_route = pytest.mark.usefixtures("route")


def tables(angles: Tensor, interleaved: bool) -> Rotation:
    """The tables of angles (..., length, pairs), each of which stands at both places of its pair."""
    doubled = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
    return Rotation(doubled.cos(), doubled.sin(), interleaved)


def turned_as_complex_numbers(x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
    """A pair is a complex number, and multiplied by e^(i·angle)."""
    dim = 2 * angles.shape[-1]
    real, imaginary = (x[..., :dim:2], x[..., 1:dim:2]) if interleaved else x[..., :dim].chunk(2, -1)
    angles = angles.unsqueeze(1) if angles.dim() == 3 else angles
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
    parts = (turned.real, turned.imag)
    both = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat((both, x[..., dim:]), -1)


@PAIRINGS
@pytest.mark.parametrize("angles", [(5, 8), (5, 3), (2, 5, 8), (1, 5, 4)], ids=str)
def test_a_pair_is_turned_like_a_complex_number(angles: tuple[int, ...], interleaved: bool) -> None:
    x, drawn = torch.randn(2, 3, 5, 16, dtype=torch.float64), torch.randn(angles, dtype=torch.float64)
    expected = turned_as_complex_numbers(x, drawn, interleaved)
    torch.testing.assert_close(rotated(x, tables(drawn, interleaved)), expected)


@every_route
@PAIRINGS
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, torch.inf])
@pytest.mark.parametrize("planes", [8, 3])
def test_rows_are_normalised_over_all_entries_and_then_turned(p: float, planes: int, interleaved: bool) -> None:
    x = torch.randn(2, 5, 3, 16).transpose(1, 2).requires_grad_()
    g, drawn, dy = torch.randn(3, requires_grad=True), torch.randn(5, planes), torch.randn(2, 3, 5, 16)
    y = scaled_lp_normalize(x, g, p, EPS, tables(drawn, interleaved))
    wide_x, wide_g = (tensor.detach().double().requires_grad_() for tensor in (x, g))
    expected = turned_as_complex_numbers(
        wide_g.view(-1, 1, 1) * reference.normalize(wide_x, p), drawn.double(), interleaved
    )
    actual = (y, *torch.autograd.grad(y, (x, g), dy))
    for ours, theirs in zip(
        actual, (expected, *torch.autograd.grad(expected, (wide_x, wide_g), dy.double())), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=2e-5)


def test_a_turn_keeps_logits_a_function_of_the_distance() -> None:
    """What rotary positions are for, and why the norm comes first."""
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64).expand(2, 1, 1, 9, 16)
    angles = torch.arange(9.0, dtype=torch.float64)[:, None] * torch.rand(8, dtype=torch.float64)
    turned_q, turned_k = (scaled_lp_normalize(x, None, 3.0, EPS, tables(angles, False)) for x in (q, k))
    logits = (turned_q @ turned_k.mT)[0, 0]
    torch.testing.assert_close(logits[:-1, :-1], logits[1:, 1:])


@every_route
@pytest.mark.parametrize("scale", [torch.ones(1), torch.ones(())], ids=["(1,)", "()"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (5, 8), (8,)], ids=str)
def test_a_scale_of_one_number_keeps_shapes(scale: Tensor, shape: tuple[int, ...]) -> None:
    g, x = scale.clone().requires_grad_(), torch.randn(shape, requires_grad=True)
    y = scaled_lp_normalize(x, g, 2.0, EPS)
    assert y.shape == x.shape
    assert [d.shape for d in torch.autograd.grad(y.sum(), (x, g))] == [x.shape, g.shape]


@every_route
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_tables_may_have_any_precision(dtype: torch.dtype) -> None:
    x, drawn = torch.randn(2, 3, 5, 16), torch.randn(5, 8)
    cos, sin, _ = tables(drawn, False)
    narrow = Rotation(cos.to(dtype), sin.to(dtype))
    wide = Rotation(narrow.cos.double(), narrow.sin.double())
    result = scaled_lp_normalize(x, None, 2.0, EPS, narrow)
    assert result.dtype == x.dtype
    torch.testing.assert_close(
        result.double(), scaled_lp_normalize(x.double(), None, 2.0, EPS, wide), rtol=0, atol=1e-6
    )


def test_angles_that_learn_receive_their_gradient() -> None:
    x, cos, sin = torch.randn(2, 3, 5, 8), *torch.randn(2, 5, 8, requires_grad=True).unbind()
    actual = torch.autograd.grad(scaled_lp_normalize(x, None, 2.0, EPS, Rotation(cos, sin)).square().sum(), (cos, sin))
    expected = torch.autograd.grad(rotated(reference.normalize(x, 2.0), Rotation(cos, sin)).square().sum(), (cos, sin))
    torch.testing.assert_close(actual, expected)


def test_the_operator_itself_refuses_a_gradient_of_angles() -> None:
    cos, sin = torch.randn(2, 5, 8, requires_grad=True).unbind()
    y = torch.ops.qknorm.lp_normalize(torch.randn(2, 3, 5, 8), None, 2.0, EPS, cos, sin, False)[0]
    with pytest.raises(RuntimeError, match="no gradient for cos and sin"):
        y.sum().backward()


@every_route
@pytest.mark.parametrize(
    ("cos", "sin"),
    [((5, 8), (5, 6)), ((4, 8), (4, 8)), ((3, 5, 8), (3, 5, 8)), ((5, 10), (5, 10)), ((5, 7), (5, 7)), ((8,), (8,))],
    ids=["different", "positions", "batch", "too wide", "odd", "one dimension"],
)
def test_angles_that_do_not_fit_are_refused(cos: tuple[int, ...], sin: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"for x of shape \(2, 3, 5, 8\), cos and sin must have shape \(5, dim\)"):
        scaled_lp_normalize(torch.randn(2, 3, 5, 8), None, 2.0, EPS, Rotation(torch.ones(cos), torch.ones(sin)))


def test_angles_elsewhere_or_of_whole_numbers_are_refused() -> None:
    x, table = torch.randn(2, 3, 5, 8), torch.ones(5, 8)
    with pytest.raises(ValueError, match="sin is on meta"):
        scaled_lp_normalize(x, None, 2.0, EPS, Rotation(table, table.to("meta")))
    with pytest.raises(TypeError, match="cos must hold real floating-point numbers"):
        scaled_lp_normalize(x, None, 2.0, EPS, Rotation(table.long(), table))


def test_vmap_passes_through_the_turn() -> None:
    x, rotary = torch.randn(4, 2, 3, 5, 8), tables(torch.randn(5, 4), True)
    result = torch.func.vmap(lambda x: scaled_lp_normalize(x, None, 2.0, EPS, rotary))(x)
    torch.testing.assert_close(result[1], scaled_lp_normalize(x[1], None, 2.0, EPS, rotary))
