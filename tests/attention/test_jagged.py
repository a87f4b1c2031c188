"""Nested tensors of the jagged layout are normalised as their sequences are, one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import qknorm

HEADS, HEAD_DIM, LENGTHS = 3, 8, (4, 6, 1)


def sequences(*lengths: int) -> list[Tensor]:
    """(length, heads, head_dim) each."""
    return [torch.randn(length, HEADS, HEAD_DIM, dtype=torch.float64) for length in lengths]


def jagged(each: list[Tensor]) -> Tensor:
    nested: Tensor = torch.nested.nested_tensor(each, layout=torch.jagged)
    return nested


def tables(*shape: int) -> tuple[Tensor, Tensor]:
    angles = torch.randn(*shape, HEAD_DIM // 2, dtype=torch.float64).repeat_interleave(2, -1)
    return angles.cos(), angles.sin()


@pytest.mark.parametrize("layout", ["bhld", "blhd"])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("per_head", [True, False])
def test_each_sequence_is_normalised_as_if_alone(layout: Any, p: float, per_head: bool) -> None:
    scale = torch.rand(HEADS if per_head else 1, dtype=torch.float64)
    queries, keys = sequences(*LENGTHS), sequences(5, 2, 3)
    sides = [jagged(side) if layout == "blhd" else jagged(side).transpose(1, 2) for side in (queries, keys)]
    found = qknorm.normalize_qk(sides[0], sides[1], scale, p, layout=layout)
    for side, own in zip(found, sides, strict=True):
        assert side.shape == own.shape  # with the very same offsets, so that they can be added
    for i, (query, key) in enumerate(zip(queries, keys, strict=True)):
        expected = qknorm.normalize_qk(query, key, scale, p, layout="blhd")
        of_one = [side if layout == "blhd" else side.transpose(1, 2) for side in found]
        torch.testing.assert_close([side.unbind()[i] for side in of_one], list(expected))


@pytest.mark.parametrize("shape", [(6,), (9,), (1, 6), (len(LENGTHS), 6)], ids=str)
def test_positions_count_from_the_beginning_of_each_sequence(shape: tuple[int, ...]) -> None:
    queries, (cos, sin) = sequences(*LENGTHS), tables(*shape)
    nested = jagged(queries)
    found, _ = qknorm.normalize_qk(nested, nested, 2.0, layout="blhd", rotary=(cos, sin, "interleaved"))
    for i, query in enumerate(queries):
        own_cos, own_sin = (table.expand(len(LENGTHS), -1, -1)[i, : len(query)] for table in (cos, sin))
        own = qknorm.Rotary(own_cos, own_sin, "interleaved")
        expected, _ = qknorm.normalize_qk(query, query, 2.0, layout="blhd", rotary=own)
        torch.testing.assert_close(found.unbind()[i], expected)


def test_gradients_are_those_of_the_sequences() -> None:
    scale = torch.rand(HEADS, dtype=torch.float64, requires_grad=True)
    leaves = [sequence.requires_grad_() for sequence in sequences(*LENGTHS)]
    nested = torch.nested.as_nested_tensor(leaves, layout=torch.jagged)
    of_nested = qknorm.normalize_qk(nested, nested, scale, 3.0, layout="blhd")[0].values().sin().sum()
    one_by_one = [qknorm.normalize_qk(leaf, leaf, scale, 3.0, layout="blhd")[0].sin().sum() for leaf in leaves]
    losses = (of_nested, torch.stack(one_by_one).sum())
    found, expected = (torch.autograd.grad(loss, [scale, *leaves]) for loss in losses)
    torch.testing.assert_close(found, expected)


def test_torchs_attention_takes_what_comes_back() -> None:
    queries = sequences(*LENGTHS)
    nested = jagged(queries).transpose(1, 2)
    q, k = qknorm.normalize_qk(nested, nested, 5.0)
    found = F.scaled_dot_product_attention(q, k, nested, scale=1.0).transpose(1, 2).unbind()
    for own, query in zip(found, queries, strict=True):
        heads = query.transpose(0, 1)
        torch.testing.assert_close(own.transpose(0, 1), qknorm.qk_attention(heads, heads, heads, 5.0))


def test_what_is_not_jagged_along_its_length_is_refused() -> None:
    nested, padded = jagged(sequences(4, 6)), torch.randn(2, 6, HEADS, HEAD_DIM, dtype=torch.float64)
    for query, key, layout in ((nested, padded, "blhd"), (padded, nested, "blhd"), (nested, nested, "bhld")):
        with pytest.raises(ValueError, match="must be jagged"):
            qknorm.normalize_qk(query, key, 1.0, layout=layout)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tables for 5 positions, but a sequence has 6"):
        qknorm.normalize_qk(nested, nested, 1.0, layout="blhd", rotary=tables(5))
