"""CTranslate2 with our very weights, in float32.

What it can carry is a model with `qk_norm: none, norm: layer, placement: pre`: a standard transformer. The language
vectors become part of its table of positions; its target vocabulary holds only the pieces that may be said, and BOS,
which its bias keeps from being said.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs.transformer_spec import TransformerSpec
from torch import Tensor, nn

from benchmarks.translators import Pieces
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import PlainKind, kind_of
from qknorm.data.subwords import BOS, EOS, SPECIAL_PIECES, UNK
from qknorm.decoding.beam import BeamSettings
from qknorm.errors import InputError
from qknorm.models.layers import FeedForward, sinusoids
from qknorm.models.translator import DecoderLayer, EncoderLayer, TranslatorModel

_POSITIONS = 1024
_NEVER = -1e4
BATCH = 64


def save_as_ctranslate2(model: TranslatorModel, folder: Path) -> None:
    """Write a folder that `ctranslate2.Translator` opens. Its pieces are called by `piece_name`."""
    config = model.config
    if (kind_of(config.qk_norm), config.norm, config.placement) != (PlainKind(), "layer", "pre"):
        raise InputError("CTranslate2 runs standard transformers: qk_norm=none norm=layer placement=pre")
    spec: Any = TransformerSpec.from_config((config.encoder_layers, config.decoder_layers), config.heads)
    vectors = model.embedding.vectors()
    (direction,) = model.directions
    positions = sinusoids(_POSITIONS, config.dim)

    spec.encoder.embeddings[0].weight = _array(vectors)
    spec.encoder.position_encodings.encodings = _array(positions + model.languages[direction.source_number])
    _norm(spec.encoder.layer_norm, model.encoder_norm)
    for layer, ours in zip(spec.encoder.layer, model.encoder, strict=True):
        assert isinstance(ours, EncoderLayer)
        _self_attention(layer.self_attention, ours.attention, ours.attention_residual.norm)
        _feed_forward(layer.ffn, ours.feed_forward, ours.feed_forward_residual.norm)

    target = torch.cat([torch.tensor([BOS]), model.target_vocabulary(direction)])
    bias = model.embedding.output_bias[target].clone()
    bias[0] = _NEVER
    spec.decoder.embeddings.weight = _array(vectors[target])
    spec.decoder.position_encodings.encodings = _array(positions + model.languages[direction.target_number])
    spec.decoder.projection.weight, spec.decoder.projection.bias = _array(vectors[target]), _array(bias)
    _norm(spec.decoder.layer_norm, model.decoder_norm)
    for layer, ours in zip(spec.decoder.layer, model.decoder, strict=True):
        assert isinstance(ours, DecoderLayer)
        _self_attention(layer.self_attention, ours.attention, ours.attention_residual.norm)
        _source_attention(layer.attention, ours.source_attention, ours.source_attention_residual.norm)
        _feed_forward(layer.ffn, ours.feed_forward, ours.feed_forward_residual.norm)

    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (SPECIAL_PIECES[n] for n in (UNK, BOS, EOS))
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.register_source_vocabulary([piece_name(number) for number in range(len(vectors))])
    spec.register_target_vocabulary([piece_name(number) for number in target.tolist()])
    spec.validate()
    spec.save(str(folder))


class CTranslate2Decoder:
    """Its beam search with our length penalty's exponent, on two threads; `workers` are as many with a thread each."""

    def __init__(
        self, model: TranslatorModel, settings: BeamSettings, precision: str = "float32", workers: int | None = None
    ) -> None:
        self._settings, self.batch_size = settings, BATCH if workers else 0
        threads = {"inter_threads": workers or 1, "intra_threads": 1 if workers else torch.get_num_threads()}
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            save_as_ctranslate2(model, Path(folder))
            self.translator = ctranslate2.Translator(folder, compute_type=precision, **threads)

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        limit = max(map(len, sources)) + self._settings.extra_length
        return self._search(sources, max_decoding_length=limit)

    def forced(self, sources: Sequence[Pieces], length: int) -> int:
        outputs = self._search(sources, min_decoding_length=length - 1, max_decoding_length=length - 1)
        return sum(len(pieces) + 1 for pieces in outputs)

    def _search(self, sources: Sequence[Pieces], **lengths: int) -> list[Pieces]:
        results = self.translator.translate_batch(
            [[piece_name(number) for number in source] for source in sources],
            beam_size=self._settings.beam_size,
            length_penalty=self._settings.length_penalty,
            max_batch_size=self.batch_size or len(sources),
            batch_type="examples",
            max_input_length=0,
            **lengths,
        )
        return [[_number(piece) for piece in result.hypotheses[0]] for result in results]


def piece_name(number: int) -> str:
    """What a piece is called in the converted model."""
    return SPECIAL_PIECES[number] if number < len(SPECIAL_PIECES) else str(number)


def _number(name: str) -> int:
    return SPECIAL_PIECES.index(name) if name in SPECIAL_PIECES else int(name)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().float().contiguous().numpy()


def _norm(spec: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _linear(spec: Any, *linears: nn.Module) -> None:
    """One or several linear maps of the same input as one."""
    spec.weight = _array(torch.cat([linear.get_parameter("weight") for linear in linears]))
    spec.bias = _array(torch.cat([linear.get_parameter("bias") for linear in linears]))


def _self_attention(spec: Any, attention: QKNormAttention, norm: nn.Module) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[0], attention.q_proj, attention.k_proj, attention.v_proj)
    _linear(spec.linear[1], attention.out_proj)


def _source_attention(spec: Any, attention: QKNormAttention, norm: nn.Module) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[0], attention.q_proj)
    _linear(spec.linear[1], attention.k_proj, attention.v_proj)
    _linear(spec.linear[2], attention.out_proj)


def _feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.Module) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear_0, feed_forward.inner)
    _linear(spec.linear_1, feed_forward.outer)
