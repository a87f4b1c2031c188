from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import qknorm
from qknorm.attention.observed import Attended, observing
from tests.attention.hugging_face import tiny


@pytest.mark.parametrize("added", [False, True])
def test_masks_and_shared_heads_are_understood(added: bool) -> None:
    attention = qknorm.QKNormAttention(32, 4, num_kv_heads=2)
    x, memory, mask = torch.randn(2, 5, 32), torch.randn(2, 7, 32), torch.rand(2, 1, 5, 7) > 0.3
    mask[0, 0, 2] = False  # a query that may look nowhere
    given = torch.zeros(2, 1, 5, 7).masked_fill(~mask, -math.inf) if added else mask
    seen: list[Attended] = []
    with observing(attention, lambda _name, _layer, attended: seen.append(attended)):
        attention(x, memory, attn_mask=given)
    (rows,) = seen[0].rows()
    assert torch.allclose(rows.weights(), attention.weights(x, memory, attn_mask=mask), atol=1e-6)


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Phi3"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_transformers_models_are_seen_as_they_attend(family: str, implementation: str) -> None:
    model = tiny(family)
    model.set_attn_implementation(implementation)
    numbers = torch.randint(31, (2, 9))
    mask = torch.ones_like(numbers)
    mask[0, :3] = 0  # padding at the left
    seen: list[Attended] = []
    with torch.no_grad(), observing(model, lambda _name, _layer, attended: seen.append(attended)):
        model(numbers, attention_mask=mask)
    model.set_attn_implementation("eager")
    expected = model(numbers, attention_mask=mask, output_attentions=True).attentions
    assert len(seen) == len(expected)
    for layer, weights in zip(seen, expected, strict=True):
        (rows,) = layer.rows()
        assert torch.allclose(rows.weights()[1], weights[1], atol=1e-5)
        assert torch.allclose(rows.weights()[0, :, 3:], weights[0, :, 3:], atol=1e-5)


def test_transformers_is_left_as_it_was() -> None:
    model = tiny("Llama")
    from transformers import AttentionInterface

    before = AttentionInterface.get_interface
    with qknorm.watch(model, every=1) as watched:
        model(torch.randint(31, (2, 9)))
        assert AttentionInterface.get_interface is before
    assert list(watched.looks[0].layers) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]


def test_memory_is_linear_in_length() -> None:
    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                self.size = max(self.size, out.untyped_storage().nbytes())
            return out

    def largest(length: int) -> int:
        attention, x = qknorm.QKNormAttention(8, 2), torch.randn(1, length, 8)
        with Largest() as seen, torch.no_grad(), qknorm.watch(attention):
            attention(x, is_causal=True)
        return int(seen.size)

    assert largest(2048) <= 2 * largest(1024)
