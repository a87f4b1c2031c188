"""Attention with p = 2 and one g is that of a Qwen3."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qknorm import QKNormAttention, hf
from qknorm.attention.norms import LpKind
from qknorm.models.gpt import GPT, GPTConfig
from tests.hf.test_models import logits
from tests.hf.tiny import tiny_config, tiny_model, transformers

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
