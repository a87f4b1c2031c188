"""Hugging Face's MarianMTModel: a transformer of the same size with the norm after each sublayer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from benchmarks.translators import Pieces, Sentences, Size
from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS, PAD
from qknorm.decoding.beam import BeamSettings

_IGNORED = -100


def make_marian(vocabulary: int, size: Size) -> MarianMTModel:
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=size.dim,
        encoder_layers=size.encoder_layers,
        decoder_layers=size.decoder_layers,
        encoder_ffn_dim=size.feed_forward,
        decoder_ffn_dim=size.feed_forward,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        activation_function="relu",
        dropout=size.dropout,
        attention_dropout=size.dropout,
        activation_dropout=size.dropout,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=EOS,
        attn_implementation="sdpa",
    )
    return MarianMTModel(config)


class MarianLearner:
    """Adam, clipping and torch's label smoothing around it, over sentences sorted by length."""

    def __init__(self, sentences: Sentences, size: Size) -> None:
        self._model, self._size = make_marian(sentences.vocabulary, size).train(), size
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=3e-4)
        self._batches = _endless(sentences, size.budget)

    def update(self) -> int:
        batch = next(self._batches).with_word_dropout(self._size.word_dropout)
        mask = batch.source != PAD
        logits = self._model(
            input_ids=batch.source, attention_mask=mask.long(), decoder_input_ids=batch.target_in, use_cache=False
        ).logits
        wanted = batch.target_out.masked_fill(batch.target_out == PAD, _IGNORED)
        loss = F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=_IGNORED, label_smoothing=self._size.label_smoothing
        )
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        return batch.target_tokens


class MarianDecoder:
    """`generate` with weights drawn at random: it cannot carry ours."""

    def __init__(self, vocabulary: int, size: Size, settings: BeamSettings) -> None:
        self._model, self._settings = make_marian(vocabulary, size).eval(), settings

    @torch.inference_mode()
    def forced(self, sources: Sequence[Pieces], length: int) -> int:
        source = Batch.of(sources, [[] for _ in sources]).source
        said: Tensor = self._model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=self._settings.beam_size,
            length_penalty=self._settings.length_penalty,
            min_new_tokens=length,
            max_new_tokens=length,
        )
        return said[:, 1:].numel()  # without BOS


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
