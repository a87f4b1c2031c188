"""Tiny models of transformers with random weights, for tests; these are skipped where it is not installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

SHAPE = {
    "vocab_size": 31,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}


def tiny(family: str, **changes: Any) -> Any:
    """A causal language model of a family by the name that its classes have, such as "Llama"."""
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face's transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**(SHAPE | changes))
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()
