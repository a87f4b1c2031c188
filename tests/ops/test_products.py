"""Products of bfloat16 numbers: those of float64, rounded once, on processors with such products and without."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qknorm.ops import products
from qknorm.ops.products import product
from tests.ops.modes import Watch


@pytest.fixture(params=[False, True], ids=["this processor", "one without half products"])
def _processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(products, "HAS_HALF_PRODUCTS", False)


def exact(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() @ b.double()).bfloat16()


@pytest.mark.usefixtures("_processor")
@pytest.mark.parametrize("shapes", [((7, 300), (300, 5)), ((2, 7, 30), (2, 30, 7)), ((0, 4), (4, 3))])
def test_only_the_result_is_rounded(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Sums in bfloat16 would be off by far more than its last digit, whose weight is 2^-8."""
    torch.manual_seed(0)
    a, b = (torch.randn(shape).bfloat16() for shape in shapes)
    result = product(a, b)
    assert result.dtype is torch.bfloat16
    torch.testing.assert_close(result, exact(a, b), rtol=2**-7, atol=1e-3)
    out = torch.empty_like(result)
    assert product(a, b, out=out) is out
    assert torch.equal(out, result)


@pytest.mark.usefixtures("_processor")
def test_other_numbers_are_multiplied_as_they_are() -> None:
    a, b = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    assert torch.equal(product(a, b), a @ b)
    assert product(a.half(), b.half()).dtype is torch.float16


def test_a_processor_without_them_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would multiply one number after another."""
    monkeypatch.setattr(products, "HAS_HALF_PRODUCTS", False)
    a = torch.randn(4, 4).bfloat16()
    with Watch() as watch:
        product(a, a)
    assert dict(zip(watch.seen, watch.types, strict=True))["aten::mm"] == {torch.float32}
