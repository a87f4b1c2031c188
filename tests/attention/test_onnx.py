"""A step with rotary positions and a cache, exported once, is run by onnxruntime for any number of positions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qknorm

for needed in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

BATCH, DIM, HEADS, KV_HEADS, HEAD_DIM = 2, 32, 4, 2, 8


class Step(nn.Module):
    """New positions and the keys and values of those before in; what they attend to, and all keys and values, out."""

    def __init__(self, attention: qknorm.QKNormAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        cache = qknorm.KeyValueCache()
        cache.append(qknorm.KeyValues(keys, values))
        return self.attention(x, is_causal=True, cache=cache, rotary=(cos, sin)), *cache.held


def arguments(new: int, past: int) -> tuple[Tensor, ...]:
    angles = torch.randn(new, HEAD_DIM // 2).repeat(1, 2)
    keys, values = torch.randn(2, BATCH, KV_HEADS, past, HEAD_DIM)
    return torch.randn(BATCH, new, DIM), angles.cos(), angles.sin(), keys, values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "new"),
    [
        ({"p": 2.0}, 1),
        ({"p": 3.0, "per_head_scale": True}, 3),
        ({"p": math.inf, "length_scaling": "log"}, 1),
        ({"qk_norm": "rms"}, 3),
    ],
    ids=str,
)
def test_onnxruntime_decodes_what_eager_code_does(norm: dict[str, Any], new: int, tmp_path: Path) -> None:
    import onnxruntime

    step = Step(qknorm.QKNormAttention(DIM, HEADS, num_kv_heads=KV_HEADS, **norm)).eval()
    past = {2: torch.export.Dim("past", min=1, max=4096)}
    with torch.no_grad():
        program = torch.onnx.export(
            step, arguments(new, 5), dynamo=True, verbose=False, dynamic_shapes=(None, None, None, past, past)
        )
    assert program is not None
    program.save(tmp_path / "step.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx", providers=["CPUExecutionProvider"])
    for length in (1, 5, 40):
        given = arguments(new, length)
        names = [each.name for each in session.get_inputs()]
        found = session.run(None, {name: side.numpy() for name, side in zip(names, given, strict=True)})
        with torch.no_grad():
            expected = step(*given)
        torch.testing.assert_close([torch.from_numpy(side) for side in found], list(expected))
