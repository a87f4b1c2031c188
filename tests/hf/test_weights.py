from __future__ import annotations

import pytest
import torch

from qknorm import hf
from tests.hf.test_models import EXACT
from tests.hf.tiny import tiny_model


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("family", EXACT)
def test_the_way_back_returns_every_weight(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hf.replace_attention(model)
    hf.restore_attention(model)
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text", "stablelm"])
def test_the_way_back_keeps_norms_in_a_dtype_of_their_own(family: str) -> None:
    model = tiny_model(family).bfloat16()
    for name, module in model.named_modules():
        if "norm" in name.rpartition(".")[2]:
            module.float()
            for parameter in module.parameters():
                torch.nn.init.normal_(parameter, 0.9, 0.3)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hf.replace_attention(model)
    hf.restore_attention(model)
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)
