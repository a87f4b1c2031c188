from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qknorm.attention.module import LpNorm, QKNormAttention
from qknorm.attention.norms import LpKind
from qknorm.evaluation.attention_maps import attention_maps
from tests.models.test_translator import model

SOURCE, TARGET = [5, 6, 7, 8], [9, 10]


def by_hand(attention: QKNormAttention, queries: Tensor, keys: Tensor, is_causal: bool) -> Tensor:
    """Weights (heads, queries, keys): softmax(g · q̂ k̂ᵀ), with nothing but sums and products."""

    def heads(x: Tensor, projection: nn.Linear) -> Tensor:
        projected = x @ projection.weight.T + projection.bias
        unit = projected.view(len(x), attention.num_heads, -1).transpose(0, 1)
        return unit / (unit * unit).sum(-1, keepdim=True).sqrt()

    assert isinstance(attention.q_norm, LpNorm)
    assert attention.q_norm.scale is not None
    grown = (attention.q_norm.scale * heads(queries, attention.q_proj) @ heads(keys, attention.k_proj).mT).exp()
    grown = grown.tril() if is_causal else grown
    return grown / grown.sum(-1, keepdim=True)


@torch.no_grad()
def test_all_weights_are_the_softmax_computed_by_hand() -> None:
    translator = model().double().eval()
    calls: dict[nn.Module, Any] = {}
    for module in translator.modules():
        if isinstance(module, QKNormAttention):
            module.register_forward_pre_hook(lambda *call: calls.update({call[0]: call[1:]}), with_kwargs=True)
    actual = attention_maps(translator, SOURCE, TARGET)
    assert [maps.shape for maps in actual] == [(2, 4, 5, 5), (2, 4, 3, 3), (2, 4, 3, 5)]
    for name, maps in actual._asdict().items():
        layers = translator.encoder if name == "encoder" else translator.decoder
        for layer, weights in zip(layers, maps, strict=True):
            attention = layer.get_submodule("source_attention" if name == "cross" else "attention")
            assert isinstance(attention, QKNormAttention)
            (queries, *memory), _ = calls[attention]
            keys = memory[0] if memory else queries
            expected = by_hand(attention, queries[0], keys[0], is_causal=name == "decoder")
            torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "choices",
    [{"qk_norm": "none"}, {"qk_norm": "rms"}, {"placement": "post", "qk_norm": LpKind(p=3.0)}],
    ids=str,
)
def test_every_kind_of_attention_can_be_looked_at(choices: dict[str, object]) -> None:
    result = attention_maps(model(**choices).eval(), SOURCE, TARGET)
    for maps in result:
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
    assert (result.decoder.triu(1) == 0).all()


def test_a_piece_that_cannot_be_said_can_be_looked_at() -> None:
    assert attention_maps(model().eval(), SOURCE, [29]).cross.shape == (2, 4, 2, 5)
