"""Attention with p = 2 and one g is that of a Qwen3."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from qknorm import QKNormAttention, hf
from qknorm.attention.norms import LpKind
from qknorm.models.gpt import GPT, GPTConfig
from tests.hf.test_models import logits
from tests.hf.tiny import some_tokens, tiny_config, tiny_model, transformers

pytestmark = pytest.mark.usefixtures("float64_norms")


def qwen3_attention(**changes: Any) -> Any:
    config = tiny_config("qwen3", head_dim=8, attn_implementation="sdpa", **changes)
    return transformers.models.qwen3.modeling_qwen3.Qwen3Attention(config, 0).double().eval()


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_becomes_attention_of_a_qwen3(bias: bool) -> None:
    torch.manual_seed(0)
    ours = QKNormAttention(32, 4, num_kv_heads=2, scale_init=5.0, bias=bias, dtype=torch.float64)
    theirs = qwen3_attention(attention_bias=bias)
    theirs.load_state_dict(hf.qwen3_attention_weights(ours))
    x, angles = torch.randn(2, 7, 32, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)
    rotary = (angles.cos(), angles.sin())
    expected = ours(x, is_causal=True, rotary=rotary)
    torch.testing.assert_close(theirs(x, rotary, None)[0], expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_model_with_our_attention_becomes_a_qwen3(family: str) -> None:
    model = tiny_model(family)
    hf.replace_attention(model, LpKind(scale_init=4.0))
    qwen3 = hf.to_qwen3(model)
    assert type(qwen3).__name__ == "Qwen3ForCausalLM"
    torch.testing.assert_close(logits(qwen3), logits(model), rtol=1e-8, atol=1e-8)


def projected(qwen3: Any, name: str) -> Tensor:
    """What this projection of each layer gives."""
    found: list[Tensor] = []
    for layer in qwen3.model.layers:
        layer.self_attn.get_submodule(name).register_forward_hook(lambda _module, _inputs, out: found.append(out))
    qwen3(some_tokens())
    return torch.stack(found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [70.0, 30_000.0])
def test_long_keys_do_not_overflow_in_float16(dtype: torch.dtype, bias: float) -> None:
    """Nor do they if a model is converted in float32 and run in float16."""
    model = tiny_model("llama", attention_bias=True)
    for layer in model.model.layers:
        signs = torch.randint(0, 2, (16,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
        layer.self_attn.k_proj.bias.data = signs.double() * bias
    hf.replace_attention(model, LpKind(scale_init=4.0))
    expected = logits(model)
    qwen3 = hf.to_qwen3(model.to(dtype)).half()
    assert projected(qwen3, "k_proj").isfinite().all()
    torch.testing.assert_close(qwen3(some_tokens()).logits.double(), expected, rtol=0, atol=0.1)


@pytest.mark.parametrize("weight", [1.0, 300.0])
@torch.no_grad()
def test_the_longest_query_that_a_norm_allows_fits_into_float16(weight: float) -> None:
    attention = QKNormAttention(32, 4)
    attention.q_proj.weight.mul_(3.0)
    before = torch.full((32,), weight)
    projection = hf.qwen3_attention_weights(attention, before)["q_proj.weight"].half().float()
    direction = projection * before
    longest = direction / direction.norm(dim=1, keepdim=True) * math.sqrt(32) * before
    largest = (projection * longest).sum(1).max()
    assert torch.finfo(torch.float16).max / 8 < largest < torch.finfo(torch.float16).max


@torch.no_grad()
def test_each_head_is_as_long_as_it_can_be_and_keeps_its_digits() -> None:
    attention = QKNormAttention(32, 4)
    attention.q_proj.bias[:8] = 1000.0
    converted, own = hf.qwen3_attention_weights(attention), attention.state_dict()
    factors = converted["q_proj.weight"] / own["q_proj.weight"]
    assert factors[:8].unique().tolist() == [32]
    assert factors[8:].unique().tolist() == [1024]
    assert torch.equal(converted["q_proj.bias"][:8], own["q_proj.bias"][:8] * 32)


def test_attention_that_layers_share_is_that_of_each() -> None:
    model = tiny_model("llama")
    model.model.layers[1].self_attn = model.model.layers[0].self_attn
    hf.replace_attention(model, LpKind(scale_init=4.0))
    actual, expected = (logits(each, use_cache=False) for each in (hf.to_qwen3(model), model))
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


def test_the_qwen3_can_be_saved_and_opened(tmp_path: Any) -> None:
    model = tiny_model("llama")
    hf.replace_attention(model, "lp")
    qwen3 = hf.to_qwen3(model)
    qwen3.save_pretrained(tmp_path)
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(logits(opened), logits(qwen3), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"p": 3.0}, "p must be 2"),
        ({"qk_norm": "layer"}, "p must be 2"),
        ({"per_head_scale": True}, "cannot have a g for each head"),
        ({"normalize_value": True}, "neither normalises values"),
        ({"length_scaling": "log"}, "nor lets g grow with the length"),
    ],
)
def test_what_qwen3_cannot_do_is_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        hf.qwen3_attention_weights(QKNormAttention(32, 4, **options))


def test_our_language_model_is_not_a_qwen3() -> None:
    with pytest.raises(ValueError, match="a GPT cannot be a Qwen3 with rotary positions"):
        hf.to_qwen3(GPT(GPTConfig(vocabulary=8, dim=16, heads=2, layers=1, context=8)))
