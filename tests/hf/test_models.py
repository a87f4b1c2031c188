"""Attention of transformers replaced by ours: the same numbers, for every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qknorm import hf
from qknorm.hf.models import is_attention
from qknorm.hf.weights import ours_from_theirs
from tests.hf.tiny import some_tokens, tiny_model

EXACT = sorted(hf.FAMILIES)
CONVENTIONS = ("qwen3", "gemma3_text", "olmo2", "cohere", "stablelm", "persimmon", "llama4_text", "nanochat")

pytestmark = pytest.mark.usefixtures("float64_norms")


def logits(model: nn.Module, **inputs: Any) -> Tensor:
    """Of text: Chameleon gives the tokens of images the smallest number there is."""
    result: Tensor = model(**{"input_ids": some_tokens(), **inputs}).logits
    return result.clamp_min(-1e6)


def attention_of(model: Any) -> Any:
    """Of the first layer."""
    return next(module for module in model.modules() if is_attention(module))


@pytest.mark.parametrize("family", EXACT)
def test_our_attention_gives_the_same_logits(family: str) -> None:
    model = tiny_model(family)
    expected = logits(model)
    assert hf.replace_attention(model) == 2
    torch.testing.assert_close(logits(model), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["cohere", "glm4_moe", "llama4_text", "persimmon", "phi", "stablelm"])
def test_a_norm_that_is_switched_off_is_not_there(family: str) -> None:
    switch = hf.FAMILIES[family].switch
    assert switch is not None
    model = tiny_model(family, **{switch: False})
    expected = logits(model)
    hf.replace_attention(model)
    assert all(layer.qk_norm.norm is None for layer in hf.attention_layers(model))  # type: ignore[union-attr]
    torch.testing.assert_close(logits(model), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", CONVENTIONS)
def test_gradients_are_the_same(family: str) -> None:
    model = tiny_model(family)
    logits(model).sin().sum().backward()
    expected = {name: p.grad for name, p in model.named_parameters() if ".self_attn." not in name}
    state = {name: p.grad for name, p in attention_of(model).named_parameters()}
    expected_inside = ours_from_theirs(state, hf.spec_of(model.config))
    model = tiny_model(family)
    hf.replace_attention(model)
    logits(model).sin().sum().backward()
    actual = {name: p.grad for name, p in model.named_parameters() if ".self_attn." not in name}
    found_inside = {name: p.grad for name, p in attention_of(model).attention.named_parameters()}
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found_inside, expected_inside, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("family", CONVENTIONS)
def test_padded_batches_are_the_same_at_real_tokens(family: str) -> None:
    model = tiny_model(family, attn_temperature_tuning=False) if family == "llama4_text" else tiny_model(family)
    mask = torch.ones_like(some_tokens())
    mask[0, :3] = 0
    expected = logits(model, attention_mask=mask)
    hf.replace_attention(model)
    actual = logits(model, attention_mask=mask)
    torch.testing.assert_close(actual[mask.bool()], expected[mask.bool()], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cache", ["dynamic", "static", None])
@pytest.mark.parametrize("family", CONVENTIONS)
def test_generated_text_is_the_same_with_every_cache(family: str, cache: str | None) -> None:
    model = tiny_model(family)
    options: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "disable_compile": True}
    options |= {"cache_implementation": cache} if cache else {"use_cache": False}
    prompt = some_tokens(length=5)
    expected = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    hf.replace_attention(model)
    actual = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    assert actual.tolist() == expected.tolist()


FROZEN = {
    "qwen3": ("q_proj", "k_norm"),
    "gemma3_text": ("q_norm", "o_proj"),
    "persimmon": ("query_key_value", "q_layernorm"),
    "stablelm": ("v_proj", "k_layernorm"),
}


@pytest.mark.parametrize("family", FROZEN)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_what_is_frozen_stays_frozen_there_and_back(family: str, mode: Any) -> None:
    model = tiny_model(family)
    for part in FROZEN[family]:
        attention_of(model).get_submodule(part).requires_grad_(False)
    trained = {name: p.requires_grad for name, p in model.named_parameters()}
    with mode():
        hf.replace_attention(model)
        frozen = {name for name, p in attention_of(model).named_parameters() if not p.requires_grad}
        hf.restore_attention(model)
    assert {name: p.requires_grad for name, p in model.named_parameters()} == trained
    if family == "qwen3":
        assert frozen == {f"attention.{name}" for name in ("q_proj.weight", "q_proj.bias", "k_norm.weight")}


def test_a_projection_that_was_one_is_frozen_if_all_its_parts_are() -> None:
    model = tiny_model("persimmon")
    hf.replace_attention(model)
    first, second = hf.attention_layers(model)
    first.q_proj.requires_grad_(False)
    for part in (second.q_proj, second.k_proj, second.v_proj):
        part.requires_grad_(False)
    hf.restore_attention(model)
    weights = [p for name, p in model.named_parameters() if name.endswith("query_key_value.weight")]
    assert [weight.requires_grad for weight in weights] == [True, False]


def test_a_norm_that_is_new_is_trained_in_a_frozen_model() -> None:
    model = tiny_model("qwen3").requires_grad_(False)
    hf.replace_attention(model, "lp")
    trained = {name.rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"scale"}


def test_layers_that_share_their_attention_still_do() -> None:
    model = tiny_model("qwen3")
    first, second = model.model.layers
    first.alias = second.self_attn = first.self_attn
    expected = logits(model)
    for exchange in (hf.replace_attention, hf.restore_attention):
        assert exchange(model) == 1
        assert first.self_attn is second.self_attn is first.alias
        torch.testing.assert_close(logits(model), expected, rtol=1e-9, atol=1e-9)


def test_training_and_evaluation_go_on_where_they_were() -> None:
    model = tiny_model("qwen3").train()
    attention_of(model).eval()
    hf.replace_attention(model)
    first, second = hf.attention_layers(model)
    assert (first.training, second.training) == (False, True)
    first.train()
    second.eval()
    hf.restore_attention(model)
    assert [layer.self_attn.training for layer in model.model.layers] == [True, False]
    assert model.training


def test_what_cannot_be_exact_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="how 'gpt2' normalises queries and keys is not known"):
        hf.replace_attention(tiny_model("gpt2"))
    with pytest.raises(ValueError, match="a Linear has no attention modules to exchange"):
        hf.replace_attention(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="a Linear has no config of its own"):
        hf.from_hf(nn.Linear(2, 2))
