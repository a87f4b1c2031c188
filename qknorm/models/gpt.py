"""The decoder-only language model of the second paper: nanoGPT's shape, with the attention of this library.

Tensors are (batch, length, dim); characters are numbers (batch, length).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.attention.cache import KeyValueCache
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import QKNorm
from qknorm.ops.dropout import add_dropped, dropout

_INITIAL_DEVIATION = 0.02  # of every matrix, as in GPT-2


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a language model. The defaults are the second paper's."""

    vocabulary: int
    context: int = 256
    layers: int = 6
    heads: int = 6
    dim: int = 384
    dropout: float = 0.2
    bias: bool = False
    qk_norm: QKNorm | None = "lp"

    def make_attention(self) -> QKNormAttention:
        return QKNormAttention(self.dim, self.heads, qk_norm=self.qk_norm, dropout=self.dropout, bias=self.bias)


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); the feed-forward is four times as wide, with GELU."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.dim, bias=config.bias)
        self.attention = config.make_attention()
        self.feed_forward_norm = nn.LayerNorm(config.dim, bias=config.bias)
        self.inner = nn.Linear(config.dim, 4 * config.dim, bias=config.bias)
        self.outer = nn.Linear(4 * config.dim, config.dim, bias=config.bias)
        self.dropout = config.dropout

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        attended = self.attention(self.attention_norm(x), is_causal=True, cache=cache)
        x = add_dropped(x, attended, self.dropout, self.training)
        transformed = self.outer(F.gelu(self.inner(self.feed_forward_norm(x))))
        return add_dropped(x, transformed, self.dropout, self.training)


class GPT(nn.Module):
    """Character numbers in, logits or a loss out. The input vectors are the output weights."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = nn.Embedding(config.vocabulary, config.dim)
        self.positions = nn.Embedding(config.context, config.dim)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.dim, bias=config.bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """GPT-2's start: N(0, 0.02²), and what is added to the residual smaller by √(2 · layers)."""
        added = [linear for block in self.attention_blocks() for linear in (block.attention.out_proj, block.outer)]
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                depth = 2 * self.config.layers if module in added else 1
                nn.init.normal_(module.weight, std=_INITIAL_DEVIATION / math.sqrt(depth))
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, characters: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of predicting `targets`, both (batch, length)."""
        x = self._input(characters)
        for block in self.blocks:
            x = block(x)
        logits = self._logits(x)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def start(self) -> list[KeyValueCache]:
        """An empty cache for every layer."""
        return [KeyValueCache() for _ in self.blocks]

    def step(self, characters: Tensor, caches: list[KeyValueCache]) -> Tensor:
        """Read some more characters (batch, length): the logits of what follows the last, (batch, vocabulary)."""
        x = self._input(characters, caches[0].length)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache)
        return self._logits(x[:, -1])

    def attention_blocks(self) -> Iterator[TransformerBlock]:
        for block in self.blocks:
            assert isinstance(block, TransformerBlock)
            yield block

    def _input(self, characters: Tensor, past: int = 0) -> Tensor:
        end = past + characters.shape[1]
        if end > self.config.context:
            raise ValueError(f"{end} characters do not fit into a context of {self.config.context}")
        x: Tensor = self.characters(characters) + self.positions.weight[past:end]
        return dropout(x, self.config.dropout, self.training)

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(self.final_norm(x), self.characters.weight)
