"""Hugging Face's models of our size: MarianMTModel for training; for decoding Pegasus, since it can carry our weights.

MarianMTModel has its norms after each sublayer, Pegasus before it. Both decode by the same `generate`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from benchmarks.translators import Pieces, Sentences, Size
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import PlainKind, kind_of
from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS, PAD
from qknorm.decoding.beam import BeamSettings
from qknorm.errors import InputError
from qknorm.models.layers import sinusoids
from qknorm.models.translator import DecoderLayer, EncoderLayer, TranslatorModel

_IGNORED = -100
_NEVER = -1e4
_POSITIONS = 1024


def _settings(size: Size) -> dict[str, Any]:
    """What all models of the size have in common."""
    return {
        "d_model": size.dim,
        "encoder_layers": size.encoder_layers,
        "decoder_layers": size.decoder_layers,
        "encoder_ffn_dim": size.feed_forward,
        "decoder_ffn_dim": size.feed_forward,
        "encoder_attention_heads": size.heads,
        "decoder_attention_heads": size.heads,
        "activation_function": "relu",
        "dropout": size.dropout,
        "attention_dropout": size.dropout,
        "activation_dropout": size.dropout,
        "scale_embedding": True,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "attn_implementation": "sdpa",
    }


class MarianLearner:
    """Adam, clipping and torch's label smoothing around it, over sentences sorted by length."""

    def __init__(self, sentences: Sentences, size: Size) -> None:
        self._model, self._size = (
            MarianMTModel(MarianConfig(vocab_size=sentences.vocabulary, **_settings(size))).train(),
            size,
        )
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=3e-4)
        self._batches = _endless(sentences, size.budget)

    def update(self) -> int:
        batch = next(self._batches).with_word_dropout(self._size.word_dropout)
        mask = batch.source != PAD
        logits = self._model(
            input_ids=batch.source, attention_mask=mask.long(), decoder_input_ids=batch.target_in, use_cache=False
        ).logits
        target = batch.target_out.masked_fill(batch.target_out == PAD, _IGNORED)
        loss = F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=_IGNORED, label_smoothing=self._size.label_smoothing
        )
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        return batch.target_tokens


def as_pegasus(model: TranslatorModel) -> PegasusForConditionalGeneration:
    """Our very weights in its standard transformer with the norm before each sublayer.

    The language vectors become part of its tables of positions; its bias keeps what may not be said from being said.
    """
    config = model.config
    if (kind_of(config.qk_norm), config.norm, config.placement) != (PlainKind(), "layer", "pre"):
        raise InputError("Pegasus is a standard transformer: qk_norm=none norm=layer placement=pre")
    vectors = model.embedding.vectors().detach()
    theirs = PegasusForConditionalGeneration(
        PegasusConfig(vocab_size=len(vectors), max_position_embeddings=_POSITIONS, **_settings(Size.of(model.config)))
    ).eval()
    theirs.generation_config.forced_eos_token_id = None
    theirs.model.shared.weight.data = theirs.lm_head.weight.data = vectors
    bias = torch.full((1, len(vectors)), _NEVER)
    (direction,) = model.directions
    vocabulary = model.target_vocabulary(direction)
    bias[0, vocabulary] = model.embedding.output_bias.detach()[vocabulary]
    theirs.final_logits_bias.copy_(bias)
    positions = sinusoids(_POSITIONS, config.dim)
    for language, stack, norm, layers in zip(
        (direction.source_number, direction.target_number),
        (theirs.model.encoder, theirs.model.decoder),
        (model.encoder_norm, model.decoder_norm),
        (model.encoder, model.decoder),
        strict=True,
    ):
        stack.embed_positions.weight.data = (positions + model.languages[language]).detach()
        stack.layer_norm.load_state_dict(norm.state_dict())
        for layer, ours in zip(stack.layers, layers, strict=True):
            _copy_layer(layer, ours)
    return theirs


def _copy_layer(layer: Any, ours: nn.Module) -> None:
    assert isinstance(ours, EncoderLayer | DecoderLayer)
    _copy_attention(layer.self_attn, ours.attention)
    layer.self_attn_layer_norm.load_state_dict(ours.attention_residual.norm.state_dict())
    if isinstance(ours, DecoderLayer):
        _copy_attention(layer.encoder_attn, ours.source_attention)
        layer.encoder_attn_layer_norm.load_state_dict(ours.source_attention_residual.norm.state_dict())
    layer.fc1.load_state_dict(ours.feed_forward.inner.state_dict())
    layer.fc2.load_state_dict(ours.feed_forward.outer.state_dict())
    layer.final_layer_norm.load_state_dict(ours.feed_forward_residual.norm.state_dict())


def _copy_attention(theirs: Any, ours: QKNormAttention) -> None:
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        getattr(theirs, name).load_state_dict(ours.get_submodule(name).state_dict())


class PegasusDecoder:
    """Its `generate`, with our length penalty's exponent."""

    def __init__(self, model: TranslatorModel, settings: BeamSettings) -> None:
        self._model, self._settings = as_pegasus(model), settings

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        limit = max(map(len, sources)) + self._settings.extra_length
        return [_until_end(row) for row in self._generate(sources, max_new_tokens=limit + 1).tolist()]

    def forced(self, sources: Sequence[Pieces], length: int) -> int:
        return self._generate(sources, min_new_tokens=length, max_new_tokens=length).numel()

    @torch.inference_mode()
    def _generate(self, sources: Sequence[Pieces], **lengths: int) -> Tensor:
        source = Batch.of(sources, [[] for _ in sources]).source
        pieces: Tensor = self._model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=self._settings.beam_size,
            length_penalty=self._settings.length_penalty,
            **lengths,
        )
        return pieces[:, 1:]  # without BOS


def _until_end(pieces: Pieces) -> Pieces:
    return pieces[: pieces.index(EOS)] if EOS in pieces else pieces


def _endless(sentences: Sentences, budget: int) -> Iterator[Batch]:
    """Batches of `sentences × longest side ≤ budget`, sorted by source length, in a new order each pass."""
    rows = sorted(range(len(sentences.sources)), key=lambda row: len(sentences.sources[row]))
    groups: list[list[int]] = [[]]
    longest = 0
    for row in rows:
        longest = max(longest, len(sentences.sources[row]) + 1, len(sentences.targets[row]) + 1)
        if groups[-1] and (len(groups[-1]) + 1) * longest > budget:
            groups.append([])
            longest = max(len(sentences.sources[row]), len(sentences.targets[row])) + 1
        groups[-1].append(row)
    rng = random.Random(0)
    while True:
        for group in rng.sample(groups, len(groups)):
            yield Batch.of([sentences.sources[row] for row in group], [sentences.targets[row] for row in group])
