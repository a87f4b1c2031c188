from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qknorm import QKNormAttention, Rotary
from qknorm.ops.rotary import Pairing, rotate
from tests.attention.test_cache import cache_of
from tests.attention.test_module import DIM, HEADS, KINDS, LENGTH, kind_name, sequence, split

HEAD_DIM = DIM // HEADS
PAIRINGS = pytest.mark.parametrize("pairing", ["half", "interleaved"])


def angles(length: int, width: int, start: int = 0) -> Tensor:
    """(length, width/2) in float64: one angle for each pair."""
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(start, start + length, dtype=torch.float64)[:, None] * frequencies


def tables(length: int, width: int = HEAD_DIM, pairing: Pairing = "half", start: int = 0) -> Rotary:
    """Cosines and sines as transformers makes them for the pairing."""
    return tables_of(angles(length, width, start), pairing)


def tables_of(angles: Tensor, pairing: Pairing) -> Rotary:
    """The tables of angles (..., length, pairs), each of which stands at both places of its pair."""
    each = torch.cat([angles, angles], -1) if pairing == "half" else angles.repeat_interleave(2, -1)
    return Rotary(each.cos().float(), each.sin().float(), pairing)


def turned_as_complex_numbers(x: Tensor, angles: Tensor, pairing: Pairing) -> Tensor:
    """The formula of the paper: a pair is a complex number, a position a factor e^(i·angle)."""
    width = 2 * angles.shape[-1]
    turned, rest = x.double().split([width, x.shape[-1] - width], -1)
    planes = turned.unflatten(-1, (2, -1)).transpose(-1, -2) if pairing == "half" else turned.unflatten(-1, (-1, 2))
    product = torch.view_as_complex(planes.contiguous()) * torch.exp(1j * angles)
    planes = torch.view_as_real(product)
    turned = (planes.transpose(-1, -2) if pairing == "half" else planes).flatten(-2)
    return torch.cat([turned, rest], -1)


@PAIRINGS
@pytest.mark.parametrize("width", [HEAD_DIM, 4, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pairs_are_turned_like_complex_numbers(pairing: Pairing, width: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, HEADS, LENGTH, HEAD_DIM).to(dtype)
    actual = rotate(x, tables(LENGTH, width, pairing))
    assert actual.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    expected = turned_as_complex_numbers(x, angles(LENGTH, width), pairing)
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


@PAIRINGS
@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_the_module_turns_queries_and_keys(kind: dict[str, Any], pairing: Pairing) -> None:
    attention = QKNormAttention(DIM, HEADS, **kind)
    x, rotary = sequence(), tables(LENGTH, 4, pairing)
    q = rotate(attention.q_norm(split(attention.q_proj(x), HEADS)), rotary)
    keys, values = attention.key_values(x)
    keys, values = (
        side.repeat_interleave(HEADS // attention.num_kv_heads, 1) for side in (rotate(keys, rotary), values)
    )
    weights = (q @ keys.transpose(-1, -2) * attention.softmax_scale).softmax(-1)
    expected = attention.out_proj((weights @ values).transpose(1, 2).flatten(2))
    assert torch.allclose(attention(x, rotary=rotary), expected, atol=1e-5)
    assert torch.allclose(attention.weights(x, rotary=rotary), weights, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"window": 4}, {"max_length": LENGTH}], ids=str)
@pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 5]], ids=str)
@torch.no_grad()
def test_cached_keys_are_turned_once(options: dict[str, int], chunks: list[int]) -> None:
    attention = QKNormAttention(DIM, HEADS, p=3.0)
    x, rotary, cache = sequence(), tables(LENGTH), cache_of(options)
    window = options.get("window", LENGTH)
    visible = torch.ones(LENGTH, LENGTH).tril().triu(1 - window).bool()
    result, start = [], 0
    for part in x.split(chunks, dim=1):
        end = start + part.shape[1]
        result.append(
            attention(part, is_causal=True, cache=cache, rotary=(rotary.cos[start:end], rotary.sin[start:end]))
        )
        start = end
    assert torch.allclose(torch.cat(result, 1), attention(x, attn_mask=visible, rotary=rotary), atol=1e-5)


def test_it_compiles_with_rotary_positions_and_exports() -> None:
    torch.compiler.reset()
    attention, x, (cos, sin, _) = QKNormAttention(DIM, HEADS, p=3.0), sequence(), tables(LENGTH)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, rotary=(cos, sin)), attention(x, rotary=(cos, sin)), atol=1e-5)
    exported = torch.export.export(attention.eval(), (x,), {"rotary": (cos, sin)}).module()
    assert torch.allclose(exported(x, rotary=(cos, sin)), attention(x, rotary=(cos, sin)), atol=1e-5)


@pytest.mark.parametrize(
    ("cos", "sin"),
    [
        *(((10, 8), (10, 4)), ((9, 8), (9, 8)), ((5, 10, 8), (5, 10, 8)), ((10, 16), (10, 16)), ((10, 3), (10, 3))),
        *(((10, 0), (10, 0)), ((8,), (8,)), ((3, 1, 10, 8), (3, 1, 10, 8))),
    ],
    ids=str,
)
def test_tables_that_do_not_fit_are_refused(cos: tuple[int, ...], sin: tuple[int, ...]) -> None:
    sentence = (
        r"cos and sin of rotary must be \(10, rotary_dim\) or \(batch, 10, rotary_dim\), rotary_dim even and at most 8"
    )
    with pytest.raises(ValueError, match=sentence):
        QKNormAttention(DIM, HEADS)(sequence(), rotary=(torch.ones(cos), torch.ones(sin)))


def test_other_tables_are_refused() -> None:
    x, table = torch.randn(2, 3, 5, 8), torch.ones(5, 8)
    with pytest.raises(ValueError, match="sin of rotary is on meta"):
        rotate(x, (table, table.to("meta")))
    with pytest.raises(TypeError, match="cos of rotary must hold real floating-point numbers"):
        rotate(x, (table.long(), table))
    with pytest.raises(ValueError, match='"half" or "interleaved", not \'other\''):
        rotate(x, (table, table, "other"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rotary is for self-attention"):
        QKNormAttention(DIM, HEADS)(sequence(), sequence(), rotary=tables(LENGTH))
