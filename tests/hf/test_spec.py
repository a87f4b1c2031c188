"""The table of conventions agrees with what transformers does."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from qknorm import QKNormAttention, hf
from qknorm.hf.norms import OffsetRMSNorm
from tests.hf.test_models import EXACT, attention_of
from tests.hf.tiny import some_tokens, tiny_config, tiny_model, transformers

NORMALIZED = [family for family in EXACT if hf.FAMILIES[family].shared.get("norm")]


@pytest.mark.usefixtures("float64_norms")
@pytest.mark.parametrize("family", NORMALIZED)
def test_g_starts_where_the_spec_says(family: str) -> None:
    """A query and a key of the same direction have the logit g; here from their mean lengths."""
    seen: list[float] = []

    def look(_: Any, query: Tensor, key: Tensor, value: Tensor, *__: Any, scaling: float, **___: Any) -> Any:
        lengths = [side.detach().square().sum(-1).mean().sqrt() for side in (query, key)]
        seen.append(float(lengths[0] * lengths[1] * scaling))
        return value.repeat_interleave(query.shape[1] // value.shape[1], 1).transpose(1, 2), None

    transformers.AttentionInterface.register("look", look)
    model = tiny_model(family, moved_norms=False)
    model.set_attn_implementation("look")
    model(some_tokens())
    g = hf.spec_of(model.config).starting_scale()
    assert seen[0] == pytest.approx(g, rel=1e-3)  # eps makes it a little smaller


@pytest.mark.parametrize("family", NORMALIZED)
def test_the_modules_have_these_names_and_weights(family: str) -> None:
    model = tiny_model(family)
    spec, attention = hf.spec_of(model.config), attention_of(model)
    query, key = getattr(attention, spec.q_norm), getattr(attention, spec.k_norm)
    for norm, heads in ((query, 4), (key, spec.num_kv_heads)):
        numbers = sum(weight.numel() for name, weight in norm.named_parameters() if "bias" not in name)
        shared = heads if spec.over == "all heads" or spec.weights == "head and dim" else 1
        assert numbers == (0 if spec.weights == "none" else shared * spec.head_dim)
        assert any("bias" in name for name, _ in norm.named_parameters()) == spec.bias


def test_llama_4_normalises_where_it_rotates_and_llama_nowhere() -> None:
    none = hf.spec_of(tiny_config("llama"))
    assert (none.norm, none.layers, none.starting_scale()) == (None, (), None)
    spec = hf.spec_of(tiny_config("llama4_text"))
    assert spec.layers == spec.rotary_layers == (0,)
    assert spec.at(0).norm == "rms"
    assert spec.at(1).norm is None
    assert spec.at(1).rotary is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_with_an_offset_give_what_gemma_gives(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    theirs = transformers.models.gemma3.modeling_gemma3.Gemma3RMSNorm(16).to(dtype)
    torch.nn.init.normal_(theirs.weight, 0.0, 0.3)
    ours = OffsetRMSNorm(16, 1e-6, offset=1.0, dtype=dtype)
    assert not ours.weight.any()  # so that their sum starts at one
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, 7, 16).to(dtype)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6 if dtype is torch.float32 else 0)


def test_an_offset_where_nothing_adds_it_is_a_sentence() -> None:
    spec = dataclasses.replace(hf.spec_of(tiny_config("olmo2")), offset=1.0)
    with pytest.raises(NotImplementedError, match="weights of olmo2 have an offset, which only RMSNorm"):
        QKNormAttention(32, 4, num_kv_heads=2, head_dim=8, qk_norm=spec)


def test_the_text_of_a_model_of_images_is_meant() -> None:
    assert hf.spec_of(transformers.Gemma3Config()).family == "gemma3_text"


@pytest.mark.parametrize("family", ["bert", "gpt2", "swinv2"])
def test_an_unknown_family_is_a_sentence(family: str) -> None:
    with pytest.raises(
        ValueError, match=f"how '{family}' normalises queries and keys is not known .* it knows apertus"
    ):
        hf.spec_of(SimpleNamespace(model_type=family))


def test_a_spec_is_a_kind_of_norm() -> None:
    spec = hf.spec_of(tiny_config("olmo2"))
    layer = QKNormAttention(32, 4, num_kv_heads=2, head_dim=8, qk_norm=spec)
    assert layer(torch.randn(2, 5, 32), is_causal=True).shape == (2, 5, 32)
    with pytest.raises(ValueError, match="this olmo2 has 4 heads of 8 dimensions, not 2 of 16"):
        QKNormAttention(32, 2, qk_norm=spec)
