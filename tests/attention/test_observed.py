from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qknorm
from qknorm.attention.observed import Attended, observing
from tests.attention.hugging_face import tiny
from tests.ops.modes import Watch


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


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_transformers_models_are_seen_as_they_attend(family: str, implementation: str) -> None:
    model = tiny(family).float()
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


def note(names: list[str], name: str, _layer: nn.Module, _seen: Attended) -> None:
    names.append(name)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_observers_may_leave_in_any_order(order: tuple[int, int]) -> None:
    model, numbers = tiny("llama"), torch.randint(31, (2, 9))
    qknorm.hf.replace_attention(model.model.layers[0])
    from transformers import AttentionInterface

    before = AttentionInterface.get_interface
    seen: tuple[list[str], list[str]] = [], []
    observers = [observing(model, functools.partial(note, own)) for own in seen]
    for observer in observers:
        observer.__enter__()
    model(numbers)
    observers[order[0]].__exit__(None, None, None)
    model(numbers)
    observers[order[1]].__exit__(None, None, None)
    model(numbers)
    names = ["model.layers.0.self_attn.attention", "model.layers.1.self_attn"]
    assert [seen[place] for place in order] == [names, names * 2]
    assert AttentionInterface.get_interface is before
    assert not any(module._forward_hooks for module in model.modules())


def test_transformers_is_left_as_it_was() -> None:
    model = tiny("llama")
    from transformers import AttentionInterface

    before = AttentionInterface.get_interface
    with qknorm.watch(model, every=1) as watched:
        model(torch.randint(31, (2, 9)))
        assert AttentionInterface.get_interface is before
    assert list(watched.looks[0].layers) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]


def test_an_attention_function_is_called_as_its_model_calls_it() -> None:
    """Some models give the mask, or all tensors, by name."""
    pytest.importorskip("transformers", reason="needs Hugging Face's transformers")
    from transformers import AttentionInterface

    class Layer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            attend = AttentionInterface().get_interface("sdpa", None)
            out: Tensor = attend(self, query=x, key=x, value=x, attention_mask=None, scaling=1.0, is_causal=True)[0]
            return out

    layer, x = Layer(), torch.randn(1, 2, 5, 8)
    (seen,) = observed(layer, x).values()
    assert seen.is_causal
    assert torch.equal(seen.query, x)


def observed(model: nn.Module, *inputs: Any, **options: Any) -> dict[str, Attended]:
    """The last that each layer showed in a call."""
    seen: dict[str, Attended] = {}
    with torch.no_grad(), observing(model, lambda name, _layer, attended: seen.update({name: attended})):
        model(*inputs, **options)
    return seen


def weights_of(seen: Attended) -> Tensor:
    (rows,) = seen.rows()
    return rows.weights()


@pytest.mark.parametrize("qk_norm", [None, "lp"])
def test_replaced_attention_is_seen_with_the_cache_that_transformers_makes(qk_norm: str | None) -> None:
    model, numbers = tiny("llama"), torch.randint(31, (2, 9))
    qknorm.hf.replace_attention(model, qk_norm)
    with_cache = observed(model, numbers)
    without = observed(model, numbers, use_cache=False)
    assert list(with_cache) == [f"model.layers.{layer}.self_attn.attention" for layer in range(2)]
    for name, seen in with_cache.items():
        assert torch.equal(weights_of(seen), weights_of(without[name]))


def test_replaced_attention_takes_a_graft() -> None:
    model, numbers = tiny("llama"), torch.randint(31, (2, 9))
    qknorm.hf.replace_attention(model)
    g = qknorm.graft(model, [numbers])
    assert list(g) == [f"model.layers.{layer}.self_attn.attention" for layer in range(2)]
    assert all((own > 0).all() for own in g.values())


@pytest.mark.parametrize("max_length", [None, 16])
def test_what_meets_a_cache_is_seen_but_for_single_steps(max_length: int | None) -> None:
    attention = qknorm.QKNormAttention(32, 4, num_kv_heads=2)
    cache = qknorm.KeyValueCache() if max_length is None else qknorm.FixedKeyValueCache(max_length)
    x = torch.randn(2, 9, 32)
    expected = attention.weights(x, is_causal=True)
    seen = {}
    for part in (slice(0, 5), slice(5, 8), slice(8, 9)):
        seen[part.stop] = observed(attention, x[:, part], is_causal=True, cache=cache)
    assert torch.allclose(weights_of(seen[5][""])[..., :5], expected[:, :, :5, :5], atol=1e-6)
    assert torch.allclose(weights_of(seen[8][""])[..., :8], expected[:, :, 5:8, :8], atol=1e-6)
    assert not seen[9]


def test_single_steps_of_transformers_are_not_seen() -> None:
    model = tiny("llama")
    past = model(torch.randint(31, (2, 9))).past_key_values
    assert not observed(model, torch.randint(31, (2, 1)), past_key_values=past)


def test_memory_that_was_prepared_is_seen_and_a_step_over_it_is_not() -> None:
    attention, x, memory = qknorm.QKNormAttention(32, 2), torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    prepared = attention.key_values(memory)
    assert torch.allclose(weights_of(observed(attention, x, prepared)[""]), attention.weights(x, memory), atol=1e-6)
    assert not observed(attention, x[:, :1], prepared)
    assert observed(attention, x[:, :1], memory)  # one query may also sum up a text


def test_nothing_is_seen_in_an_empty_batch() -> None:
    assert not observed(qknorm.MultiheadAttention(32, 2), *[torch.randn(5, 0, 32)] * 3)


@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True, "add_bias_kv": True, "add_zero_attn": True}, {"kdim": 8}]
)
@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention_is_seen_as_it_attends(options: dict[str, Any], need_weights: bool) -> None:
    attention = qknorm.MultiheadAttention(32, 4, **options)
    batch_first, kdim = options.get("batch_first", False), options.get("kdim", 32)
    x, keys, values = torch.randn(2, 5, 32), torch.randn(2, 7, kdim), torch.randn(2, 7, 32)
    if kdim == 32:
        values = keys
    masks = {"attn_mask": torch.rand(5, 7) > 0.8, "key_padding_mask": torch.rand(2, 7) > 0.8}
    inputs = tuple(side if batch_first else side.transpose(0, 1) for side in (x, keys, values))
    seen = observed(attention, *inputs, **masks, need_weights=need_weights)[""]
    _, weights = attention(*inputs, **masks, average_attn_weights=False)
    assert torch.allclose(weights_of(seen), weights, atol=1e-6)
    queries = attention._projected(*inputs)[0].unflatten(-1, (4, 8)).transpose(1, 2)
    assert torch.equal(seen.projected[0], queries)


def test_multihead_attention_inside_of_torch_is_seen() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    layer.self_attn = qknorm.MultiheadAttention(32, 4, batch_first=True)
    assert list(observed(nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 32))) == [
        "layers.0.self_attn",
        "layers.1.self_attn",
    ]


def test_projections_run_once_and_draw_what_they_would_draw() -> None:
    attention, x = qknorm.QKNormAttention(32, 2), torch.randn(2, 5, 32)
    attention.q_proj = nn.Sequential(attention.q_proj, nn.Dropout(0.5))  # type: ignore[assignment]
    calls: list[str] = []
    for name in ("q_proj", "k_proj", "q_norm", "k_norm"):
        attention.get_submodule(name).register_forward_hook(lambda *_inputs, name=name: calls.append(name))
    torch.manual_seed(1)
    alone, next_alone = attention(x), torch.rand(3)
    once = calls.copy()
    calls.clear()
    torch.manual_seed(1)
    with qknorm.watch(attention):
        watched = attention(x)
    assert torch.equal(watched, alone)
    assert torch.equal(torch.rand(3), next_alone)
    assert calls == once


def test_gradients_are_those_of_an_unobserved_call() -> None:
    attention, x = qknorm.QKNormAttention(32, 2), torch.randn(2, 5, 32)
    attention(x).sum().backward()
    alone = [parameter.grad for parameter in attention.parameters()]
    attention.zero_grad()
    with qknorm.watch(attention):
        attention(x).sum().backward()
    watched = [parameter.grad for parameter in attention.parameters()]
    torch.testing.assert_close(watched, alone, rtol=0, atol=0)


def test_logits_are_those_of_full_precision_under_autocast() -> None:
    attention, x = qknorm.QKNormAttention(32, 2, scale_init=50.0), torch.randn(2, 9, 32)
    (seen,) = observed(attention, x).values()
    (expected,) = (rows.logits for rows in seen.rows())
    with torch.autocast("cpu", torch.bfloat16):
        (rows,) = seen.rows()
        assert torch.is_autocast_enabled("cpu")
    assert rows.logits.dtype == torch.float32
    assert torch.equal(rows.logits, expected)


def test_memory_is_linear_in_length() -> None:
    def largest(length: int) -> int:
        attention, x = qknorm.QKNormAttention(8, 2), torch.randn(1, length, 8)
        with Watch() as seen, torch.no_grad(), qknorm.watch(attention):
            attention(x, is_causal=True)
        return int(seen.largest)

    assert largest(2048) <= 2 * largest(1024)
