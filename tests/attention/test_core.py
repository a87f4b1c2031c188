from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qknorm
from qknorm.attention.core import AttentionCore
from qknorm.attention.observed import weights_of_head


@pytest.mark.parametrize("kind", [qknorm.QKNormAttention, qknorm.MultiheadAttention])
def test_a_hook_of_torchs_sees_what_meets_in_the_softmax(kind: type[nn.Module]) -> None:
    attention, x, seen = kind(32, 4, p=3.0, scale_init=5.0), torch.randn(2, 7, 32), []
    attention.get_submodule("core").register_forward_hook(
        lambda _core, inputs, output: seen.append((inputs, output[0]))
    )
    out = attention(x) if kind is qknorm.QKNormAttention else attention(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1)
    (((query, key, value, scale, *_), attended),) = seen
    assert torch.allclose(query.norm(p=3, dim=-1), torch.tensor(5.0))
    assert torch.allclose(key.norm(p=3, dim=-1), torch.tensor(1.0))
    assert torch.allclose(attended, (query @ key.mT * scale).softmax(-1) @ value, atol=1e-6)
    heads = attended.transpose(1, 2).flatten(2)
    joined = attention.get_submodule("out_proj")(heads)
    assert torch.allclose(joined, out, atol=1e-6)


def test_single_steps_pass_it_by() -> None:
    attention, x, cache = qknorm.QKNormAttention(32, 4).eval(), torch.randn(2, 3, 32), qknorm.KeyValueCache()
    lengths: list[int] = []
    attention.core.register_forward_pre_hook(lambda _core, inputs: lengths.append(inputs[0].shape[2]))
    with torch.no_grad():
        for part in x.split([2, 1], 1):
            attention(part, is_causal=True, cache=cache)
        attention(x[:, :1], attention.key_values(x))
        attention(x[:, :1])
    assert lengths == [2, 1]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("key_heads", [2, 4])
def test_weights_that_are_needed_are_those_of_the_answer(key_heads: int, dropout: float) -> None:
    query, key, value = (torch.randn(2, heads, 5, 8) for heads in (4, key_heads, key_heads))
    out, weights = AttentionCore()(query, key, value, 0.5, is_causal=True, dropout_p=dropout, need_weights=True)
    assert torch.allclose(out, weights @ value.repeat_interleave(4 // key_heads, 1), atol=1e-6)
    if not dropout:
        assert torch.allclose(out, AttentionCore()(query, key, value, 0.5, is_causal=True)[0], atol=1e-6)


@pytest.mark.parametrize("mask_heads", [1, 4])
def test_the_weights_of_a_head_can_be_learned_from(mask_heads: int) -> None:
    attention, x, memory = qknorm.QKNormAttention(32, 4, num_kv_heads=2), torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    mask = torch.rand(2, mask_heads, 5, 7) > 0.3
    wanted = torch.rand(2, 5, 7)

    def gradient(weights: Tensor) -> Any:
        return torch.autograd.grad((weights * wanted).sum(), attention.q_proj.weight)[0]

    with weights_of_head(attention, 2) as seen:
        attention(x, memory, attn_mask=mask)
    attention(x)
    (weights,) = seen
    expected = attention.weights(x, memory, attn_mask=mask)[:, 2]
    assert torch.allclose(weights, expected, atol=1e-6)
    assert torch.allclose(gradient(weights), gradient(expected), atol=1e-6)
