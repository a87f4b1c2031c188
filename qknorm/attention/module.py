"""QKNormAttention: multi-head attention with a choice of query-key normalisation, and what decoding needs.

Outside, tensors are (batch, length, dim); inside, (batch, heads, length, head_dim).
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from qknorm.attention.functional import attend, attention_weights, with_causal
from qknorm.attention.lp import DEFAULT_EPS, checked_p
from qknorm.attention.scale import comparable_scale
from qknorm.ops import checks
from qknorm.ops.lp import scaled_lp_normalize
from qknorm.ops.shared_attention import attend_to_history, attend_to_shared

QKNorm = Literal["lp", "rms", "layer"]


class LpNorm(nn.Module):
    """x / ‖x‖_p over the last dimension, times a learnable `scale` of shape () or (heads,) where one is given."""

    scale: nn.Parameter | None

    def __init__(self, p: float, scale: Tensor | None = None) -> None:
        super().__init__()
        self.p = checked_p(p)
        self.register_parameter("scale", None if scale is None else nn.Parameter(scale))

    def forward(self, x: Tensor) -> Tensor:
        return scaled_lp_normalize(x, self.scale, self.p, DEFAULT_EPS)

    def extra_repr(self) -> str:
        return f"p={self.p:g}" + ("" if self.scale is None else f", scale={tuple(self.scale.shape)}")


class KeyValues(NamedTuple):
    """Keys, normalised and without g, and values, each (batch, kv_heads, length, head_dim)."""

    keys: Tensor
    values: Tensor


class KeyValueCache:
    """The keys and values of the tokens decoded so far, for inference.

    One belongs to one attention layer. A key is normalised once, when it enters, and g stays with the queries. The
    room doubles when it is full, so that n steps copy O(n) entries. Beams that change places move nothing but a table
    of where each of their positions lies.
    """

    def __init__(self) -> None:
        self.length = 0
        self._room: KeyValues | None = None
        self._history: Tensor | None = None
        """(batch, length): in which entry of the room a position lies; None where it is the entry of that number."""

    def append(self, new: KeyValues) -> KeyValues:
        """Add the new positions and return all there are."""
        self._add(new)
        return self._filled()

    def attend(self, query: Tensor, new: KeyValues, scale: float) -> Tensor:
        """Add one position, and attend from it to all there are: query is (batch, heads, 1, head_dim)."""
        checks.single_queries(query, *new)
        if query.shape[0] != new.keys.shape[0] or new.keys.shape[2] != 1:
            found = f"query {tuple(query.shape)} and keys {tuple(new.keys.shape)}"
            raise ValueError(f"one position of each entry of the batch attends and is added at a time, not {found}")
        self._add(new)
        assert self._room is not None
        if self._history is not None:
            return attend_to_history(query, *self._room, self._history, scale)
        keys, values = (side.to(query.dtype) for side in self._filled())  # the room has the type of what came first
        return attend(query, keys, values, scale, enable_gqa=query.shape[1] != keys.shape[1])

    def reorder(self, rows: Tensor) -> None:
        """Let entry i of the batch continue what entry rows[i] was; rows may repeat or leave out entries (beams)."""
        if self._room is None:
            return
        if len(rows) <= len(self._room.keys):
            history = self._history
            if history is None:
                history = torch.arange(len(self._room.keys), device=rows.device)[:, None].expand(-1, self.length)
            self._history = history.index_select(0, rows)
        else:
            self._room = KeyValues(*(tensor.index_select(0, rows) for tensor in self._copied()))

    def _add(self, new: KeyValues) -> None:
        if torch.is_grad_enabled() and (new.keys.requires_grad or new.values.requires_grad):
            raise RuntimeError("a KeyValueCache is for inference: use it inside torch.no_grad() or inference_mode()")
        checks.key_values(*new)
        if self._room is not None:
            entries = (self._room.keys if self._history is None else self._history).shape[0]
            held = (entries, self._room.keys.shape[1], self._room.keys.shape[3])
            given = (*new.keys.shape[:2], new.keys.shape[3])
            if held != given or self._room.values.shape[3] != new.values.shape[3]:
                raise ValueError(
                    f"the cache holds (batch, heads, head_dim) {held}, not {given}; each attention layer "
                    "needs a cache of its own, and reorder(rows) changes the batch"
                )
        added = new.keys.shape[-2]
        end = self.length + added
        if self._room is None or end > self._room.keys.shape[-2]:
            self._grow(new, end)
        assert self._room is not None
        for room, tensor in zip(self._room, new, strict=True):
            room[: len(tensor), :, self.length : end] = tensor
        if self._history is not None:
            own = torch.arange(len(new.keys), device=self._history.device)[:, None].expand(-1, added)
            self._history = torch.cat([self._history, own], 1)
        self.length = end

    def _filled(self) -> KeyValues:
        return KeyValues(*(tensor[:, :, : self.length] for tensor in self._copied()))

    def _copied(self) -> KeyValues:
        """The room, each entry at its own place."""
        assert self._room is not None
        if self._history is not None:
            history, self._history = self._history, None
            places = history[:, None, :, None].expand(-1, *self._room.keys.shape[1:2], -1, self._room.keys.shape[3])
            copies = KeyValues(*(tensor[:, :, : self.length].gather(0, places) for tensor in self._room))
            self._room = copies
        return self._room

    def _grow(self, new: KeyValues, needed: int) -> None:
        room = max(needed, 2 * self.length, 16)
        entries = len(new.keys) if self._room is None else len(self._room.keys)
        # In memory the positions come first, so that a new one is written in one piece.
        grown = KeyValues(*(tensor.new_empty(room, entries, *tensor.shape[1::2]).permute(1, 2, 0, 3) for tensor in new))
        if self._room is not None:
            for target, source in zip(grown, self._room, strict=True):
                target[:, :, : self.length] = source[:, :, : self.length]
        self._room = grown


class QKNormAttention(nn.Module):
    """Multi-head attention, softmax(g · q̂ k̂ᵀ) v, for self- and cross-attention.

    qk_norm: "lp" divides queries and keys by their Lp norm and multiplies by a learnable g, which starts at
    `scale_init`; "rms" and "layer" apply torch's RMSNorm or LayerNorm to each head's queries and keys before the
    usual 1/√head_dim; None is plain scaled dot-product attention.
    scale_init: by default `comparable_scale(p, head_dim, √head_dim)`: every p then starts as sharp as plain attention
    over queries and keys of unit variance. The papers' start is `henry_scale(length)`.
    per_head_scale: one g per head instead of one for all. normalize_value: values too (an ablation of Henry et al.).
    num_kv_heads: fewer heads for keys and values, each shared by several query heads. dropout: on the weights.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        qk_norm: QKNorm | None = "lp",
        p: float = 2.0,
        scale_init: float | None = None,
        per_head_scale: bool = False,
        normalize_value: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim ({embed_dim}) must be a multiple of num_heads ({num_heads})")
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"num_heads ({num_heads}) must be a multiple of num_kv_heads ({num_kv_heads})")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        if qk_norm not in ("lp", "rms", "layer", None):
            raise ValueError(f'qk_norm must be "lp", "rms", "layer" or None, not {qk_norm!r}')
        if qk_norm != "lp" and (p != 2.0 or scale_init is not None or per_head_scale or normalize_value):
            raise ValueError('p, scale_init, per_head_scale and normalize_value belong to qk_norm="lp"')
        if scale_init is not None and not math.isfinite(scale_init):
            raise ValueError(f"scale_init must be a finite number, not {scale_init!r}")
        p = checked_p(p)
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim = embed_dim // num_heads
        self.qk_norm, self.dropout = qk_norm, dropout

        kv_dim = num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, kv_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, kv_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        self.v_norm: nn.Module = LpNorm(p) if normalize_value else nn.Identity()
        if qk_norm == "lp":
            if scale_init is None:
                scale_init = comparable_scale(p, self.head_dim, math.sqrt(self.head_dim))
            self._scale_init = float(scale_init)
            self.q_norm = LpNorm(p, torch.empty(num_heads if per_head_scale else ()))
            self.k_norm = LpNorm(p)
        elif qk_norm is not None:
            norm: type[nn.Module] = nn.RMSNorm if qk_norm == "rms" else nn.LayerNorm
            self.q_norm, self.k_norm = norm(self.head_dim), norm(self.head_dim)
        self._softmax_scale = 1.0 if qk_norm == "lp" else self.head_dim**-0.5
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The first paper's start: projections from N(0, 2/(5d)), biases zero, g at its start."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.normal_(projection.weight, std=math.sqrt(2 / (5 * self.embed_dim)))
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        for norm in (self.q_norm, self.k_norm):
            if isinstance(norm, (nn.RMSNorm, nn.LayerNorm)):
                norm.reset_parameters()
            elif isinstance(norm, LpNorm) and norm.scale is not None:
                nn.init.constant_(norm.scale, self._scale_init)

    def forward(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Attend from `query` to itself, or to `memory`: (batch, length, dim) in, the shape of `query` out.

        memory: another sequence, or what `key_values` made of it once for many steps. attn_mask: broadcast to
        (batch, heads, queries, keys), True where a query may attend; a padding mask of shape (batch, keys) is passed
        as `mask[:, None, None, :]`. cache: self-attention only; `query` holds the new positions, which attend to all
        cached ones and, if causal, to the new ones up to themselves.
        """
        if cache is not None and memory is None and attn_mask is None and query.shape[1] == 1:
            self._check_query(query)
            q = self.q_norm(self._split_heads(self.q_proj(query), self.num_heads))
            stepped: Tensor = self.out_proj(
                cache.attend(q, self.key_values(query), self._softmax_scale).transpose(1, 2).flatten(2)
            )
            return stepped
        q, k, v, attn_mask, is_causal = self._inputs(query, memory, attn_mask, is_causal, cache)
        dropout = self.dropout if self.training else 0.0
        out = attend(q, k, v, self._softmax_scale, attn_mask, is_causal, dropout, self._shares_kv_heads)
        projected: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return projected

    def weights(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The attention probabilities of `forward`, without dropout: (batch, heads, queries, keys)."""
        q, k, _, attn_mask, is_causal = self._inputs(query, memory, attn_mask, is_causal, None)
        return attention_weights(q, k, self._softmax_scale, attn_mask, is_causal, self._shares_kv_heads)

    def attend_shared(self, query: Tensor, memory: KeyValues, entries: Tensor, lengths: Tensor) -> Tensor:
        """Attend from single positions to memories that several of them share, for decoding with beams.

        query: (rows, 1, dim). entries: (rows,), whose memory each looks at. lengths: (batch of the memory,), how many
        positions of it are real. The same as `forward` with the memory repeated and masked; for inference on a CPU
        without the copies.
        """
        self._check_query(query)
        q = self.q_norm(self._split_heads(self.q_proj(query), self.num_heads))
        out = attend_to_shared(q, *memory, entries, lengths, self._softmax_scale)
        projected: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return projected

    def key_values(self, memory: Tensor) -> KeyValues:
        """Normalised keys, and values, of (batch, length, dim). Computed once, they serve every decoding step."""
        keys = self.k_norm(self._split_heads(self.k_proj(memory), self.num_kv_heads))
        values = self.v_norm(self._split_heads(self.v_proj(memory), self.num_kv_heads))
        return KeyValues(keys, values)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, num_kv_heads={self.num_kv_heads}, qk_norm={self.qk_norm!r}"

    @property
    def _shares_kv_heads(self) -> bool:
        return self.num_kv_heads != self.num_heads

    def _inputs(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool]:
        self._check_query(query)
        if cache is not None and memory is not None:
            raise ValueError("cache is for self-attention; pass cross-attention its memory as key_values(memory)")
        q = self.q_norm(self._split_heads(self.q_proj(query), self.num_heads))
        if isinstance(memory, KeyValues):
            keys, values = memory
        else:
            keys, values = self.key_values(query if memory is None else memory)
        past = 0 if cache is None else cache.length
        if cache is not None:
            keys, values = cache.append(KeyValues(keys, values))
        if is_causal and past > 0:
            is_causal = False
            if query.shape[1] > 1:  # a single new query sees everything before it
                attn_mask = with_causal(attn_mask, query.shape[1], keys.shape[-2], query.device, past)
        return q, keys, values, attn_mask, is_causal

    def _check_query(self, query: Tensor) -> None:
        if query.dim() != 3 or query.shape[-1] != self.embed_dim:
            raise ValueError(f"query must be (batch, length, {self.embed_dim}), not {tuple(query.shape)}")

    def _split_heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two optimiser groups: matrices with weight decay, everything else without.

    Decay would pull g, the norms' weights and the biases towards zero; they are told by having fewer than two
    dimensions or by belonging to a module whose own name ends in "norm". Frozen parameters are left out.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            in_norm = name.rpartition(".")[0].endswith("norm")
            (undecayed if in_norm or parameter.dim() < 2 else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
