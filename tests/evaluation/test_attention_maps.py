from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.attention.module import LpNorm, QKNormAttention
from qknorm.data.subwords import BOS, EOS
from qknorm.evaluation.attention_maps import attention_maps
from qknorm.models.layers import sinusoids
from qknorm.models.translator import DecoderLayer, EncoderLayer, TranslatorModel
from tests.models.test_translator import model

SOURCE, TARGET = [5, 6, 7, 8], [9, 10]


def by_hand(attention: QKNormAttention, queries: Tensor, keys: Tensor, causal: bool = False) -> tuple[Tensor, Tensor]:
    """Weights (heads, queries, keys) and output of softmax(g · q̂ k̂ᵀ) v, with nothing but sums and products."""

    def heads(x: Tensor, projection: nn.Linear) -> Tensor:
        return (x @ projection.weight.T + projection.bias).view(len(x), attention.num_heads, -1).transpose(0, 1)

    q, k = heads(queries, attention.q_proj), heads(keys, attention.k_proj)
    unit_q, unit_k = (x / (x * x).sum(-1, keepdim=True).sqrt() for x in (q, k))
    assert isinstance(attention.q_norm, LpNorm)
    assert attention.q_norm.scale is not None
    grown = (attention.q_norm.scale * unit_q @ unit_k.transpose(1, 2)).exp()
    if causal:
        grown = grown.tril()
    weights = grown / grown.sum(-1, keepdim=True)
    mixed = (weights @ heads(keys, attention.v_proj)).transpose(0, 1).reshape(len(queries), -1)
    return weights, mixed @ attention.out_proj.weight.T + attention.out_proj.bias


def all_by_hand(translator: TranslatorModel) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    vectors = translator.embedding.weight / translator.embedding.weight.norm(dim=1, keepdim=True)
    dim = vectors.shape[1]

    def read(pieces: list[int], language: int) -> Tensor:
        x: Tensor = vectors[pieces] * math.sqrt(dim) + translator.languages[language]
        return x + sinusoids(len(pieces), dim).double()

    def normalised(x: Tensor) -> Tensor:
        return F.layer_norm(x, (dim,))  # fresh norms have weight 1 and bias 0

    def feed_forward(layer: EncoderLayer | DecoderLayer, x: Tensor) -> Tensor:
        inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
        return x + (normalised(x) @ inner.weight.T + inner.bias).relu() @ outer.weight.T + outer.bias

    encoder, decoder, cross = [], [], []
    x = read([*SOURCE, EOS], 0)
    for layer in translator.encoder:
        assert isinstance(layer, EncoderLayer)
        weights, out = by_hand(layer.attention, normalised(x), normalised(x))
        encoder.append(weights)
        x = feed_forward(layer, x + out)
    memory, x = normalised(x), read([BOS, *TARGET], 1)
    for layer in translator.decoder:
        assert isinstance(layer, DecoderLayer)
        weights, out = by_hand(layer.attention, normalised(x), normalised(x), causal=True)
        decoder.append(weights)
        x = x + out
        weights, out = by_hand(layer.source_attention, normalised(x), memory)
        cross.append(weights)
        x = feed_forward(layer, x + out)
    return encoder, decoder, cross


def test_all_weights_are_the_softmax_computed_by_hand() -> None:
    translator = model().double().eval()
    actual = attention_maps(translator, SOURCE, TARGET)
    assert actual.encoder.shape == (2, 4, 5, 5)
    assert actual.decoder.shape == (2, 4, 3, 3)
    assert actual.cross.shape == (2, 4, 3, 5)
    with torch.no_grad():
        for maps, expected in zip(actual, all_by_hand(translator), strict=True):
            torch.testing.assert_close(maps, torch.stack(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("choices", [{"qk_norm": "none"}, {"qk_norm": "rms"}, {"placement": "post", "p": 3.0}], ids=str)
def test_every_kind_of_attention_can_be_looked_at(choices: dict[str, object]) -> None:
    result = attention_maps(model(**choices).eval(), SOURCE, TARGET)
    for maps in result:
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
    assert (result.decoder.triu(1) == 0).all()


def test_looking_leaves_no_trace() -> None:
    translator = model().eval()
    attention_maps(translator, SOURCE, TARGET)
    assert not any(module._forward_pre_hooks for module in translator.modules())


def test_a_piece_that_cannot_be_said_can_be_looked_at() -> None:
    assert attention_maps(model().eval(), SOURCE, [29]).cross.shape == (2, 4, 2, 5)
