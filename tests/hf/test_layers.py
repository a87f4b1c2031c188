from __future__ import annotations

import torch

from qknorm import hf
from tests.hf.test_models import attention_of
from tests.hf.tiny import tiny_model


def test_a_layer_is_made_from_a_module_and_leaves_it_alone() -> None:
    module = attention_of(tiny_model("qwen3"))
    layer = hf.from_hf(module)
    with torch.no_grad():
        layer.q_proj.weight.zero_()
    assert layer.head_dim == 16
    assert layer.num_kv_heads == 2
    assert module.q_proj.weight.abs().min() > 0
