from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qknorm import LpNorm, comparable_scale, henry_scale, lp_normalize, percentile_length


@pytest.mark.parametrize(("length", "g"), [(72, 12.32), (75, 12.44), (79, 12.59)])
def test_the_papers_starts(length: int, g: float) -> None:
    assert round(henry_scale(length), 2) == g


@pytest.mark.parametrize("length", [1, 0, -3, math.nan])
def test_a_length_without_a_start_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        henry_scale(length)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0, 20.0, 1000.0, math.inf])
@pytest.mark.parametrize("head_dim", [8, 64, 256])
def test_comparable_scales_make_gaussian_attention_equally_sharp(p: float, head_dim: int) -> None:
    q, k = torch.randn(2, 3000, head_dim, dtype=torch.float64).unbind(0)
    logits = comparable_scale(p, head_dim, math.sqrt(head_dim)) * lp_normalize(q, p) @ lp_normalize(k, p).T
    assert logits.square().mean().sqrt().item() == pytest.approx(1.0, rel=0.02)


def test_comparable_scales_fall_with_p_towards_their_limit() -> None:
    starts = [comparable_scale(p, 64, 8.0) for p in (1.0, 2.0, 4.0, 8.0, 20.0, 300.0, math.inf)]
    assert starts == sorted(starts, reverse=True)
    assert comparable_scale(1e5, 64, 8.0) == pytest.approx(starts[-1], rel=1e-4)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_the_start_of_lp_norm_keeps_the_variance(p: float) -> None:
    norm = LpNorm(64, p=p, dtype=torch.float64)
    assert norm(torch.randn(50_000, 64, dtype=torch.float64)).std().item() == pytest.approx(1.0, rel=0.01)


def test_comparable_scale_at_2_is_the_given_one() -> None:
    assert comparable_scale(2.0, 64, 12.32) == pytest.approx(12.32)
    with pytest.raises(ValueError, match="p must be"):
        comparable_scale(0.5, 64, 1.0)
    with pytest.raises(ValueError, match="head_dim"):
        comparable_scale(2.0, 0, 1.0)


@given(st.lists(st.integers(1, 500), min_size=1), st.floats(0, 100))
def test_percentiles_are_numpys(lengths: list[int], percentile: float) -> None:
    assert percentile_length(lengths, percentile) == pytest.approx(np.percentile(lengths, percentile))


def test_percentiles_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        percentile_length([])
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile_length([1], 101)
