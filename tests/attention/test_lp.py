from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from qknorm import LpNorm, lp_normalize
from qknorm.ops import _dispatch
from qknorm.ops import lp as operator
from tests.attention import reference
from tests.attention.reference import DTYPES, P_VALUES, p_name
from tests.ops.kernels import kernels_are_built, needs_kernel, use_twins

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2.5e-3}
ROUTES = ("kernel", "twin", "formula")


def use_route(monkeypatch: pytest.MonkeyPatch, route: str) -> None:
    if route == "kernel" and not kernels_are_built():
        pytest.skip("no C++ compiler: the kernel cannot be built")
    if route == "twin":
        use_twins(monkeypatch, operator)
    if route == "formula":
        monkeypatch.setattr(_dispatch, "is_left_to_torch", lambda *_: True)


def value_and_gradient(function: Callable[[Tensor], Tensor], x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    (dx,) = torch.autograd.grad(y, x, dy.to(y.dtype))
    return y.detach(), dx


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", P_VALUES, ids=p_name)
@pytest.mark.parametrize("row", [64, 7])
def test_value_and_gradient_equal_the_reference(
    p: float, dtype: torch.dtype, route: str, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_route(monkeypatch, route)
    x = torch.randn(2, 3, 70, row, dtype=torch.float64).to(dtype)
    if math.isinf(p):  # one largest entry per row, so that the gradient is not a choice
        x[..., 3] = 5 * torch.randn(2, 3, 70).sign().to(dtype)
    dy = torch.randn_like(x)
    y, dx = value_and_gradient(lambda x: lp_normalize(x, p), x, dy)
    expected, expected_dx = value_and_gradient(lambda x: reference.normalize(x, p), x.double(), dy.double())
    assert y.dtype == dx.dtype == dtype
    assert torch.allclose(y.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert torch.allclose(dx.double(), expected_dx, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0], ids=p_name)
def test_the_second_derivative_is_right_at_exact_zeros(p: float) -> None:
    x = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    actual = torch.autograd.functional.hessian(lambda x: (lp_normalize(x, p) * torch.arange(3.0)).sum(), x)
    step = 1e-5 * torch.eye(3, dtype=torch.float64)

    def gradient(x: Tensor) -> Tensor:
        return value_and_gradient(lambda x: lp_normalize(x, p), x, torch.arange(3.0, dtype=torch.float64))[1]

    expected = torch.stack([(gradient(x + row) - gradient(x - row)) / 2e-5 for row in step])
    assert torch.allclose(actual, expected, atol=1e-4)


def test_create_graph_changes_no_gradient_even_if_g_was_made_from_x() -> None:
    def gradient(create_graph: bool) -> Tensor:
        x = torch.randn(3, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
        y = operator.scaled_lp_normalize(x, (x * x).mean(), 2.0, 1e-12)
        return torch.autograd.grad((y**3).sum(), x, create_graph=create_graph)[0]

    assert torch.allclose(gradient(True), gradient(False), atol=1e-5)


def test_a_scale_that_lies_elsewhere_or_is_no_number_is_refused() -> None:
    x = torch.randn(1, 2, 3, 8)
    with pytest.raises(ValueError, match="scale is on meta"):
        operator.scaled_lp_normalize(x, torch.tensor(5.0, device="meta"), 2.0, 1e-12)
    with pytest.raises(TypeError, match="real floating-point"):
        operator.scaled_lp_normalize(x, torch.tensor(5.0 + 1j), 2.0, 1e-12)
    with pytest.raises(ValueError, match=r"scale must have shape \(\) or \(1,\), not \(2,\)"):
        operator.scaled_lp_normalize(torch.randn(2, 16), torch.ones(2), 2.0, 1e-12)


some_examples = settings(max_examples=40)


def vectors(exponent: int) -> st.SearchStrategy[np.ndarray]:
    """Arrays whose entries are zero or between 2^-exponent and 2^exponent in magnitude."""
    return hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=20),
        elements=st.floats(-(2.0**exponent), 2.0**exponent, width=32).map(
            lambda v: 0.0 if abs(v) < 2.0**-exponent else v
        ),
    )


all_p = st.sampled_from(P_VALUES) | st.floats(1, 12)


@pytest.mark.parametrize("route", ROUTES)
@some_examples
@given(array=vectors(99), p=all_p)
def test_every_vector_gets_unit_norm_or_becomes_zero(route: str, array: np.ndarray, p: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        use_route(patch, route)
        x = torch.from_numpy(array)
        y = lp_normalize(x, p, eps=0.0).double()
    norms = torch.linalg.vector_norm(y, ord=p, dim=-1)
    alive = (x != 0).any(-1)
    assert torch.allclose(norms[alive], torch.ones_like(norms[alive]), atol=2e-5)
    assert (y[~alive] == 0).all()


@pytest.mark.parametrize("route", ROUTES)
@some_examples
@given(array=vectors(99), p=all_p)
def test_the_gradient_is_finite_and_orthogonal(route: str, array: np.ndarray, p: float) -> None:
    x = torch.from_numpy(array)
    dy = torch.linspace(-1, 1, x.numel()).view(x.shape)
    with pytest.MonkeyPatch.context() as patch:
        use_route(patch, route)
        _, dx = value_and_gradient(lambda x: lp_normalize(x, p), x, dy)
    assert dx.isfinite().all()
    along, lengths = (dx.double() * x.double()).sum(-1), dx.double().norm(dim=-1) * x.double().norm(dim=-1)
    assert (along.abs() <= 1e-4 * lengths + 1e-5).all()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("p", P_VALUES, ids=p_name)
class TestExtremes:
    @pytest.fixture(autouse=True)
    def _route(self, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
        use_route(monkeypatch, route)

    @pytest.mark.parametrize("size", [1e-29, 1e-20, 1e20, 1e30])
    def test_tiny_and_huge_vectors(self, p: float, size: float) -> None:
        x = torch.randn(4, 64)
        y, dx = value_and_gradient(lambda x: lp_normalize(x, p), x * size, torch.randn(4, 64))
        assert torch.allclose(y, lp_normalize(x, p), atol=1e-5)
        assert dx.isfinite().all()
        assert dx.any()

    def test_tiny_and_huge_entries_in_one_vector(self, p: float) -> None:
        y = lp_normalize(torch.tensor([1e30, -1e-30, 0.0, 1e30]), p)
        expected = 1.0 if math.isinf(p) else 2 ** (-1 / p)
        assert torch.allclose(y, torch.tensor([expected, 0.0, 0.0, expected]), atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_the_ends_of_the_half_precisions(self, p: float, dtype: torch.dtype) -> None:
        info = torch.finfo(dtype)
        for size in (info.max, info.tiny):
            y = lp_normalize(torch.full((2, 64), size, dtype=dtype), p, eps=0.0)
            expected = 1.0 if math.isinf(p) else 64 ** (-1 / p)
            assert torch.allclose(y.double(), torch.full((2, 64), expected, dtype=torch.float64), rtol=1e-2)

    def test_a_vector_within_eps_becomes_zero_without_gradient(self, p: float) -> None:
        x = torch.stack([torch.zeros(8), torch.full((8,), 1e-14), torch.ones(8)])
        y, dx = value_and_gradient(lambda x: lp_normalize(x, p, eps=1e-12), x, torch.randn(3, 8))
        assert not y[:2].any()
        assert not dx[:2].any()
        assert y[2].all()

    def test_nan_stays_visible(self, p: float) -> None:
        x = torch.ones(2, 16)
        x[0, 5] = math.nan
        y = lp_normalize(x, p)
        assert y[0].isnan().any()
        assert y[1].isfinite().all()


@pytest.mark.parametrize("p", [0.5, 0, -1, math.nan, "2", None, True, -math.inf, 1j])
def test_a_p_that_is_no_norm_is_refused(p: object) -> None:
    with pytest.raises(ValueError, match="p must be a number from 1 to infinity"):
        lp_normalize(torch.ones(3), p)  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [np.int64(3), np.float32(3), 3])
def test_any_kind_of_number_will_do_for_p(p: float) -> None:
    x = torch.randn(4, 8)
    assert torch.equal(lp_normalize(x, p), lp_normalize(x, 3.0))


def test_an_enormous_p_is_infinity() -> None:
    x = torch.randn(4, 8)
    for p in (1e10, 1e300):
        assert torch.equal(lp_normalize(x, p), lp_normalize(x, math.inf))


@pytest.mark.parametrize("tensor", [torch.ones(3, dtype=torch.long), torch.ones(3, dtype=torch.complex64)])
def test_only_real_numbers_are_normalised(tensor: Tensor) -> None:
    with pytest.raises(TypeError, match="real floating-point"):
        lp_normalize(tensor)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 0, 5, 4)])
def test_empty_tensors_pass_through(shape: tuple[int, ...], route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_route(monkeypatch, route)
    assert lp_normalize(torch.ones(shape)).shape == shape


def test_torchs_defaults_do_not_matter() -> None:
    x = torch.randn(4, 64, requires_grad=True)
    expected = lp_normalize(x)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            actual = lp_normalize(x)
            torch.autograd.backward(actual, torch.ones_like(expected, device="cpu"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(actual, expected)
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("p", [1.5, 2.0, math.inf], ids=p_name)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(1, 2),
        lambda x: x.transpose(2, 3),
        lambda x: x[:, ::2, :, 1::3],
        lambda x: x[0, 0],
        lambda x: x[0, 0, 0],
        lambda x: x.unflatten(0, (1, 2, 1)),
        lambda x: x[:1].expand(5, -1, -1, -1),
        lambda x: torch.complex(x, x).conj().imag,  # lazily negated
        lambda x: x.unfold(-1, 8, 1)[:, :, 0],  # windows that overlap each other
        lambda x: x[0, 0, 0].unfold(0, 8, 1),
    ],
)
def test_views_give_what_their_copies_give(view: Callable[[Tensor], Tensor], p: float) -> None:
    x = view(torch.randn(2, 4, 6, 16))
    dy = torch.randn(x.shape)
    y, dx = value_and_gradient(lambda x: lp_normalize(x, p), x, dy)
    expected, expected_dx = value_and_gradient(lambda x: lp_normalize(x, p), x.contiguous(), dy)
    assert torch.allclose(y, expected, atol=1e-6)
    assert torch.allclose(dx, expected_dx, atol=1e-6)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_any_dimension_can_be_normalised(dim: int) -> None:
    x = torch.randn(3, 4, 5)
    assert torch.allclose(lp_normalize(x, 3.0, dim=dim).norm(p=3, dim=dim), torch.ones(1), atol=1e-5)


class TestTransforms:
    """What the kernel cannot do goes another way by itself, with the same numbers."""

    @pytest.mark.parametrize("p", [1.0, 2.5, 7.3, math.inf], ids=p_name)
    def test_vmap_and_grad(self, p: float) -> None:
        x = torch.randn(6, 8)
        assert torch.allclose(torch.func.vmap(lambda row: lp_normalize(row, p))(x), lp_normalize(x, p), atol=1e-6)
        gradient = torch.func.grad(lambda x: lp_normalize(x, p).pow(3).sum())(x)
        _, expected = value_and_gradient(lambda x: lp_normalize(x, p).pow(3).sum(), x, torch.tensor(1.0))
        assert torch.allclose(gradient, expected, atol=1e-5)
        per_row = torch.func.vmap(torch.func.grad(lambda row: lp_normalize(row, p).pow(3).sum()))(x)
        assert torch.allclose(per_row, expected, atol=1e-5)

    def test_compile_accepts_one_p_after_another(self) -> None:
        torch.compiler.reset()
        compiled = torch.compile(lp_normalize, fullgraph=True, backend="aot_eager")
        x = torch.randn(5, 16)
        for p in (1.0, 2.0, 2.5, 7.3, math.inf):
            (y, dx), expected = (value_and_gradient(partial(f, p=p), x, x.cos()) for f in (compiled, lp_normalize))
            torch.testing.assert_close((y, dx), expected, rtol=1e-5, atol=1e-5)

    def test_tracing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(lambda x: lp_normalize(x, 3.0), torch.randn(4, 8))
        x = torch.randn(4, 8)
        assert torch.allclose(traced(x), lp_normalize(x, 3.0), atol=1e-6)

    def test_autocast_keeps_the_dtype(self) -> None:
        x = torch.randn(4, 64)
        with torch.autocast("cpu", torch.bfloat16):
            assert lp_normalize(x, 3.0).dtype == torch.float32
            assert lp_normalize(x.bfloat16(), 3.0).dtype == torch.bfloat16

    @needs_kernel
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_memory_that_was_freed_before_the_backward_pass_is_missed(self, dtype: torch.dtype) -> None:
        x = torch.randn(4, 8, dtype=dtype, requires_grad=True)
        inner = x * 1
        y = LpNorm(8, elementwise_affine=False)(inner)
        inner.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match=r"the memory of a tensor of shape \(4, 8\) was freed"):
            y.sum().backward()

    def test_batched_backward(self) -> None:
        x = torch.randn(8, requires_grad=True)
        jacobian = torch.autograd.functional.jacobian(lp_normalize, x, vectorize=True)
        rows = [torch.autograd.grad(lp_normalize(x), x, row)[0] for row in torch.eye(8)]
        assert torch.allclose(jacobian, torch.stack(rows), atol=1e-6)
