"""`attn_implementation="qknorm"`."""

from __future__ import annotations

import math

import pytest
import torch

from qknorm import LpNorm, hf
from qknorm.attention.norms import LpKind
from tests.hf.test_models import logits
from tests.hf.tiny import some_tokens, tiny_config, tiny_model, transformers


def test_it_is_our_attention_for_p_2() -> None:
    """But for the cosines and sines of transformers, which are rounded to float32."""
    model, replaced = tiny_model("llama"), tiny_model("llama")
    assert hf.add_lp_norms(model, scale_init=5.0) == 2
    hf.replace_attention(replaced, LpKind(scale_init=5.0))
    torch.testing.assert_close(logits(model), logits(replaced), rtol=1e-5, atol=1e-5)


def test_g_of_each_head_learns() -> None:
    model = tiny_model("gpt2")
    hf.add_lp_norms(model, per_head_scale=True)
    logits(model).sin().sum().backward()
    scales = [module.scale for module in model.modules() if isinstance(module, LpNorm) and module.scale is not None]
    assert [tuple(scale.shape) for scale in scales] == [(4,), (4,)]
    assert all(scale.grad is not None and scale.grad.abs().min() > 0 for scale in scales)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_text_is_generated_as_if_read_at_once(cache: str) -> None:
    model = tiny_model("llama")
    hf.add_lp_norms(model, scale_init=math.pi)
    prompt = some_tokens(length=5)
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "disable_compile": True}
    text = model.generate(prompt, attention_mask=torch.ones_like(prompt), cache_implementation=cache, **options)
    best = model(text).logits[:, 4:-1]
    best[..., 2] = -math.inf  # the end, which was forbidden
    assert best.argmax(-1).tolist() == text[:, 5:].tolist()


def test_other_p_after_a_rotation_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="p = 3 after rotary positions is not what it is before them"):
        hf.add_lp_norms(tiny_model("llama"), p=3.0)


def test_without_g_it_says_what_to_do() -> None:
    hf.register()
    model = transformers.AutoModelForCausalLM.from_config(tiny_config("llama"), attn_implementation="qknorm")
    with pytest.raises(ValueError, match=r"needs a g in LlamaAttention: call qknorm.hf.add_lp_norms\(model\)"):
        model(some_tokens())
