"""The encoder-decoder of the first paper, with every part of its tables as a choice.

Tensors are (batch, length, dim); piece numbers are (batch, length).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.attention.cache import KeyValueCache, KeyValues
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import QKNorm
from qknorm.data.batches import Batch
from qknorm.data.subwords import PAD
from qknorm.models.layers import (
    Embedding,
    FeedForward,
    NormKind,
    Placement,
    Residual,
    VocabularyLoss,
    make_norm,
    sinusoids,
    widened,
)
from qknorm.ops.dropout import dropout

TAUGHT_HEAD = 0
"""Of the last layer's attention to the source: the head that may be taught where words are translated from."""


@dataclass(frozen=True)
class TranslatorConfig:
    """The shape of a translator. The defaults are the first paper's base model."""

    dim: int = 512
    feed_forward: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    norm: NormKind = "layer"
    placement: Placement = "pre"
    fix_norm: bool = True
    qk_norm: QKNorm | None = "lp"
    dropout: float = 0.3
    attention_dropout: float = 0.3
    relu_dropout: float = 0.3
    embedding_dropout: float = 0.3
    label_smoothing: float = 0.1
    position_dim: int | None = None
    """The width that positions are made in, if a model that was narrower has grown."""

    def make_attention(self) -> QKNormAttention:
        return QKNormAttention(self.dim, self.heads, qk_norm=self.qk_norm, dropout=self.attention_dropout)

    def make_residual(self) -> Residual:
        return Residual(self.dim, self.norm, self.placement, self.dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.attention = config.make_attention()
        self.attention_residual = config.make_residual()
        self.feed_forward = FeedForward(config.dim, config.feed_forward, config.relu_dropout)
        self.feed_forward_residual = config.make_residual()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_residual(x, lambda x: self.attention(x, attn_mask=mask))
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Self-attention over what has been said, attention to the source, then feed-forward."""

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.attention = config.make_attention()
        self.attention_residual = config.make_residual()
        self.source_attention = config.make_attention()
        self.source_attention_residual = config.make_residual()
        self.feed_forward = FeedForward(config.dim, config.feed_forward, config.relu_dropout)
        self.feed_forward_residual = config.make_residual()

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        x = self.attention_residual(x, lambda x: self.attention(x, is_causal=True))
        x = self.source_attention_residual(x, lambda x: self.source_attention(x, memory, attn_mask=memory_mask))
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return out

    def step(self, x: Tensor, memory: KeyValues, cache: KeyValueCache, state: DecodingState) -> Tensor:
        """One more position of each row: x is (rows, 1, dim)."""
        x = self.attention_residual(x, lambda x: self.attention(x, is_causal=True, cache=cache))
        x = self.source_attention_residual(x, lambda x: state.attend_to_source(self.source_attention, x, memory))
        out: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return out


@dataclass(frozen=True)
class Direction:
    """From one language to another, by their codes, and the numbers by which the weights know it and them."""

    source: str
    target: str
    number: int
    source_number: int
    target_number: int

    @property
    def name(self) -> str:
        """Such as en-gl."""
        return f"{self.source}-{self.target}"

    @property
    def languages(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Both codes, each with its number."""
        return (self.source, self.source_number), (self.target, self.target_number)


@dataclass
class DecodingState:
    """What the decoder keeps between two pieces. Sentences have several rows each, one for each of their beams."""

    direction: Direction
    memories: list[KeyValues]
    """Per layer, the keys and values of the source: one entry per sentence."""
    memory_mask: Tensor
    caches: list[KeyValueCache]
    """Per layer, those of the target so far: one entry per row."""
    vectors: Tensor
    """The embedding vectors, normalised once."""
    output: tuple[Tensor, Tensor]
    """Weight and bias of the output layer."""
    sentences: Tensor
    """(rows,): the sentence of each row."""

    def __post_init__(self) -> None:
        self.lengths = self.memory_mask.sum((1, 2, 3))

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        """Let row i continue what row rows[i] was; it belongs to sentences[i]."""
        self.sentences = sentences
        for cache in self.caches:
            cache.reorder(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Go on with these sentences only; `reorder` does the same for their rows."""
        self.memories = [KeyValues(*(side.index_select(0, sentences) for side in memory)) for memory in self.memories]
        self.memory_mask = self.memory_mask.index_select(0, sentences)
        self.lengths = self.lengths.index_select(0, sentences)

    def attend_to_source(self, attention: QKNormAttention, x: Tensor, memory: KeyValues) -> Tensor:
        """Attention of (rows, 1, dim) to the sentences, whose memory is not copied for each row."""
        return attention.attend_shared(x, memory, self.sentences, self.lengths)


class TranslatorModel(nn.Module):
    """Piece numbers in, a loss or log-probabilities out.

    target_pieces: for each pair of language codes, which pieces may be said: (pieces,), True for those of the target.
    """

    def __init__(self, config: TranslatorConfig, target_pieces: Mapping[tuple[str, str], Tensor]) -> None:
        super().__init__()
        self.times_trained = 0
        numbers = {code: number for number, code in enumerate(dict.fromkeys(chain(*target_pieces)))}
        self.config = config
        self.directions = tuple(
            Direction(source, target, number, numbers[source], numbers[target])
            for number, (source, target) in enumerate(target_pieces)
        )
        pieces = len(next(iter(target_pieces.values())))
        self.embedding = Embedding(pieces, config.dim, config.fix_norm)
        self.languages = nn.Parameter(torch.randn(len(numbers), config.dim) * config.dim**-0.5)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        final = config.placement == "pre"  # with the norm before each sublayer, the last sum is still to be normalised
        self.encoder_norm = make_norm(config.norm, config.dim) if final else nn.Identity()
        self.decoder_norm = make_norm(config.norm, config.dim) if final else nn.Identity()
        self.loss = VocabularyLoss()
        for number, may_be_said in enumerate(target_pieces.values()):
            vocabulary = may_be_said.nonzero().squeeze(1)
            classes = torch.full((pieces,), -1).index_copy(0, vocabulary, torch.arange(len(vocabulary)))
            self.register_buffer(f"target_vocabulary_{number}", vocabulary, persistent=False)
            self.register_buffer(f"class_of_piece_{number}", classes, persistent=False)

    def train(self, mode: bool = True) -> Self:
        """Count how often training began: an optimiser may change weights without their version telling of it."""
        self.times_trained += mode
        return super().train(mode)

    def target_vocabulary(self, direction: Direction) -> Tensor:
        """The numbers of the pieces that a target may have. Only they have logits at all."""
        return self.get_buffer(f"target_vocabulary_{direction.number}")

    def forward(self, batch: Batch) -> Tensor:
        """The mean loss over the target pieces, EOS included, with label smoothing over the target vocabulary."""
        vectors, direction = self.embedding.vectors(), self.directions[batch.direction]
        memory = self.encode(batch.source, batch.source_mask, direction, vectors)
        x = self._input(batch.target_in, direction.target_number, vectors)
        for layer in self.decoder:
            x = layer(x, memory, batch.source_mask)
        real = batch.target_out != PAD
        target = self.get_buffer(f"class_of_piece_{direction.number}")[batch.target_out[real]]
        smoothing = self.config.label_smoothing if self.training else 0.0
        weight, bias = self._output(direction, vectors)
        loss: Tensor = self.loss(self.decoder_norm(x)[real], weight, bias, target, smoothing)
        return loss

    def encode(self, source: Tensor, mask: Tensor, direction: Direction, vectors: Tensor) -> Tensor:
        x = self._input(source, direction.source_number, vectors)
        for layer in self.encoder:
            x = layer(x, mask)
        encoded: Tensor = self.encoder_norm(x)
        return encoded

    def start(self, source: Tensor, direction: Direction, beams: int = 1) -> DecodingState:
        """Read the source sentences (batch, length), once; each is to have `beams` rows side by side."""
        vectors, mask = self.embedding.vectors(), (source != PAD)[:, None, None, :]
        encoded = self.encode(source, mask, direction, vectors)
        memories = [layer.source_attention.key_values(encoded) for layer in self._decoder_layers()]
        caches = [KeyValueCache() for _ in self.decoder]
        rows = torch.arange(len(source), device=source.device).repeat_interleave(beams)
        return DecodingState(direction, memories, mask, caches, vectors, self._output(direction, vectors), rows)

    def step(self, pieces: Tensor, state: DecodingState) -> Tensor:
        """Add one more piece after `pieces` (rows,): logits over the target vocabulary."""
        x = self._input(pieces[:, None], state.direction.target_number, state.vectors, state.caches[0].length)
        for layer, memory, cache in zip(self._decoder_layers(), state.memories, state.caches, strict=True):
            x = layer.step(x, memory, cache, state)
        return F.linear(self.decoder_norm(x)[:, 0], *state.output)

    @property
    def taught_attention(self) -> QKNormAttention:
        """To the source, of the last layer: of it one head, `TAUGHT_HEAD`, may be taught where to look."""
        *_, last = self._decoder_layers()
        return last.source_attention

    def _decoder_layers(self) -> Iterator[DecoderLayer]:
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            yield layer

    def _output(self, direction: Direction, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Weight (target vocabulary, dim) and bias of the output layer."""
        vocabulary = self.target_vocabulary(direction)
        return vectors.index_select(0, vocabulary), self.embedding.output_bias.index_select(0, vocabulary)

    def _input(self, numbers: Tensor, language: int, vectors: Tensor, start: int = 0) -> Tensor:
        x = self.embedding.embed(numbers, vectors) + self.languages[language]
        x = x + self.positions(numbers.shape[1], x, start)
        return dropout(x, self.config.embedding_dropout, self.training)

    def positions(self, length: int, like: Tensor, start: int) -> Tensor:
        """(length, dim), of the type of another tensor. A model that has grown knows those of its first width."""
        config = self.config
        width = config.position_dim or config.dim
        narrow = sinusoids(length, width, like.device, start).to(like.dtype)
        if width == config.dim:
            return narrow
        return widened(narrow * math.sqrt(config.dim / width), config.dim, config.norm, config.fix_norm)
