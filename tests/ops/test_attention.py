"""Attention with dropout against plain float64, with dropout that can be looked at."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import attention
from tests.attention import reference
from tests.ops.kernels import use_route


@pytest.fixture(autouse=True, params=["kernel", "twin"])
def _route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_route(request.param, monkeypatch, attention)


DROPOUT = 0.3


def plain(query: Tensor, key: Tensor, scale: float, mask: Tensor | None, is_causal: bool) -> Tensor:
    """The attention weights in float64."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = query.double() @ key.double().mT * scale
    visible = torch.ones_like(scores, dtype=torch.bool)
    visible = visible.tril() if is_causal else visible
    return reference.softmax(scores, visible if mask is None else visible & mask)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", ["nothing", "keys", "pairs"])
@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "queries", "keys", "row"),
    [(2, 4, 4, 33, 47, 64), (3, 4, 2, 65, 65, 32), (1, 2, 1, 5, 3, 20), (2, 3, 3, 70, 100, 7), (1, 1, 1, 1, 1, 1)],
)
def test_values_and_gradients_are_those_of_float64(
    batch: int, heads: int, key_heads: int, queries: int, keys: int, row: int, masked: str, is_causal: bool
) -> None:
    torch.manual_seed(0)
    query = torch.randn(batch, queries, heads, row).transpose(1, 2).requires_grad_()
    key = torch.randn(batch, keys, key_heads, row).transpose(1, 2).requires_grad_()
    value = torch.randn(batch, key_heads, keys, row, requires_grad=True)
    shape = {"nothing": None, "keys": (batch, 1, 1, keys), "pairs": (batch, heads, queries, keys)}[masked]
    mask = None if shape is None else torch.rand(shape) < 0.6
    out = attention.in_one_pass(query, key, value, 0.2, mask, is_causal, 0.0)
    expected = plain(query, key, 0.2, mask, is_causal) @ value.double().repeat_interleave(heads // key_heads, 1)
    gradient = torch.randn_like(out)
    actual = torch.autograd.grad(out, (query, key, value), gradient)
    gradients = torch.autograd.grad(expected, (query, key, value), gradient.double())
    assert torch.allclose(out.double(), expected, atol=1e-5)
    torch.testing.assert_close(actual, gradients, rtol=1e-5, atol=2e-5, check_dtype=False)


def seen_weights(query: Tensor, key: Tensor, dropout: float) -> Tensor:
    """The weights after dropout: what attention returns for values that are the unit vectors."""
    keys = key.shape[2]
    units = torch.eye(keys).expand(*key.shape[:2], keys, keys)
    padded = [F.pad(x, (0, keys - x.shape[-1])) for x in (query, key)]
    return attention.in_one_pass(padded[0], padded[1], units, 1.0, None, False, dropout)


def test_dropout_zeroes_its_share_and_scales_the_rest() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 8, 4, 100, 16).unbind(0)
    kept = seen_weights(query, key, DROPOUT)
    weights = plain(query, key, 1.0, None, False).float()
    dropped = kept == 0
    assert abs(float(dropped.float().mean()) - DROPOUT) < 5 * (DROPOUT * (1 - DROPOUT) / dropped.numel()) ** 0.5
    assert torch.allclose(kept[~dropped], weights[~dropped] / (1 - DROPOUT), rtol=1e-4)


def test_the_backward_pass_drops_what_the_forward_pass_dropped() -> None:
    torch.manual_seed(3)
    query, key, value = (torch.randn(2, 2, 40, 40, requires_grad=True) for _ in range(3))
    torch.manual_seed(7)
    kept = seen_weights(query.detach(), key.detach(), DROPOUT) != 0
    torch.manual_seed(7)
    out = attention.in_one_pass(query, key, value, 1.0, None, False, DROPOUT)
    expected = (plain(query, key, 1.0, None, False) * kept / (1 - DROPOUT)) @ value.double()
    gradient = torch.randn_like(out)
    assert torch.allclose(out.double(), expected, atol=1e-4)
    actual = torch.autograd.grad(out, (query, key, value), gradient)
    gradients = torch.autograd.grad(expected, (query, key, value), gradient.double())
    torch.testing.assert_close(actual, gradients, rtol=1e-5, atol=5e-4, check_dtype=False)


def test_what_is_not_a_number_is_not_hidden() -> None:
    query, key, value = torch.randn(3, 1, 1, 40, 8).unbind(0)
    key[0, 0, 30] = torch.nan
    mask = torch.zeros(1, 1, 1, 40, dtype=torch.bool)
    mask[..., 30] = True
    assert attention.in_one_pass(query, key, value, 1.0, mask, False, 0.0).isnan().all()
