from __future__ import annotations

import pytest
import torch

from qknorm.hf.norms import OffsetRMSNorm
from tests.hf.tiny import transformers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_with_an_offset_give_what_gemma_gives(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    theirs = transformers.models.gemma3.modeling_gemma3.Gemma3RMSNorm(16).to(dtype)
    torch.nn.init.normal_(theirs.weight, 0.0, 0.3)
    ours = OffsetRMSNorm(16, 1e-6, offset=1.0, dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, 7, 16).to(dtype)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6 if dtype is torch.float32 else 0)


def test_weights_with_an_offset_start_where_their_sum_is_one() -> None:
    norm = OffsetRMSNorm(8, 1e-6, offset=1.0)
    assert norm.weight.abs().max() == 0
    torch.testing.assert_close(norm(torch.ones(1, 1, 1, 8)), torch.ones(1, 1, 1, 8))
