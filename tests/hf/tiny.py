"""Tiny random models of transformers, made from configs: two layers, four heads, no download."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install qknorm[hf]")

_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "attention_dropout": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_SLIDING = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_IMAGES = {
    "base_channels": 32,
    "channel_multiplier": [1],
    "num_res_blocks": 1,
    "embed_dim": 8,
    "latent_channels": 8,
    "num_embeddings": 8,
}
_OWN: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16, "attention_bias": True},
    "qwen3_moe": _EXPERTS,
    "apertus": {"hidden_act": "silu"},
    "gemma3_text": {"query_pre_attn_scalar": 20, **_SLIDING},
    "olmo3": _SLIDING,
    "cohere": {"use_qk_norm": True},
    "stablelm": {"qk_layernorm": True, "use_qkv_bias": True},
    "persimmon": {"qk_layernorm": True, "num_key_value_heads": 4},
    "phi": {"qk_layernorm": True},
    "glm4_moe": {"use_qk_norm": True, "attention_bias": True, **_ROUTED},
    "dots1": {"n_shared_experts": 1, **_ROUTED},
    "flex_olmo": {"num_experts": 4, "num_experts_per_tok": 2},
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {
        "num_local_experts": 2,
        "intermediate_size_mlp": 48,
        "no_rope_layers": [1, 0],
        "floor_scale": 4,
        "attention_chunk_size": 4,
        "moe_layers": [],
    },
    "mixtral": {"num_local_experts": 2},
    "chameleon": {"vocabulary_map": {"<image>": 5, "IMGIMGA": 6}, "vq_config": _IMAGES},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 2},
}


def tiny_config(family: str, **changes: Any) -> Any:
    sizes = _SIZES if family != "gpt2" else {"vocab_size": 64}
    return transformers.AutoConfig.for_model(family, **{**sizes, **_OWN.get(family, {}), **changes})


def tiny_model(family: str, *, moved_norms: bool = True, **changes: Any) -> Any:
    """In float64; the weights and biases of norms are moved away from their start, so that a wrong one shows."""
    torch.manual_seed(0)
    config = tiny_config(family, **changes)
    auto = transformers.AutoModelForImageTextToText if family == "chameleon" else transformers.AutoModelForCausalLM
    experts = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}  # for float64
    model = auto.from_config(config, dtype=torch.float64, attn_implementation="sdpa", **experts).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "norm" not in name:
            nn.init.normal_(parameter, 0.0, 0.3)
        elif moved_norms:
            nn.init.normal_(parameter, 0.9, 0.3)
    return model


def some_tokens(batch: int = 2, length: int = 11) -> Tensor:
    return torch.randint(7, 64, (batch, length), generator=torch.Generator().manual_seed(1))
