"""QKNormAttention: multi-head attention with a choice of query-key normalisation.

Outside, tensors are (batch, length, dim); inside, (batch, heads, length, head_dim).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from qknorm.attention.cache import KeyValueCache, KeyValues
from qknorm.attention.core import AttentionCore
from qknorm.attention.length import LengthScaling, length_scaling_of, scaled_for_length
from qknorm.attention.norms import Heads, LpNorm, QKNorm, kind_of, normalized
from qknorm.ops import checks
from qknorm.ops.attention import attend, attention_weights, merged, top_left
from qknorm.ops.rotary import RotaryTables
from qknorm.ops.shared_attention import attend_to_history, attend_to_shared

__all__ = ["KeyValueCache", "KeyValues", "LpNorm", "QKNorm", "QKNormAttention", "parameter_groups"]


class Projection(nn.Linear):
    """A linear map that starts as in the first paper: weights from N(0, 2/(5d)), d the model's width; biases zero.

    It initialises itself, so how and in which order a model's modules are reset does not matter.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool,
        embed_dim: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        self._deviation = math.sqrt(2 / (5 * embed_dim))
        super().__init__(in_features, out_features, bias, device, dtype)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self._deviation)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class QKNormAttention(nn.Module):
    """Multi-head attention, softmax(g · q̂ k̂ᵀ) v, for self- and cross-attention.

    qk_norm: "lp" divides queries and keys by their Lp norm and multiplies by a learnable g, which starts at
    `scale_init`; "rms" and "layer" apply torch's RMSNorm or LayerNorm to each head's queries and keys before the
    usual 1/√head_dim; None is plain scaled dot-product attention. Options may stand beside the name, as in
    `{"kind": "lp", "p": 3}` or `LpKind(p=3)`, instead of being arguments. It may be a kind of your own: see `norms`.
    scale_init: by default `comparable_scale(p, head_dim, √head_dim)`: every p then starts as sharp as plain attention
    over queries and keys of unit variance. The papers' start is `henry_scale(length)`.
    per_head_scale: one g per head instead of one for all. log_scale: learn ln g, so that g stays positive.
    normalize_value: normalise values too (an ablation of Henry et al.).
    num_kv_heads: fewer heads for keys and values, each shared by several query heads. head_dim: by default
    embed_dim / num_heads. dropout: on the weights.
    length_scaling: a factor of g from the number of keys a query sees; "log" is `LogLength()`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        qk_norm: QKNorm | None = "lp",
        p: float = 2.0,
        eps: float | None = None,
        scale_init: float | None = None,
        per_head_scale: bool = False,
        log_scale: bool = False,
        normalize_value: bool = False,
        length_scaling: Literal["log"] | LengthScaling | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or (head_dim is None and embed_dim % num_heads):
            raise ValueError(f"embed_dim ({embed_dim}) must be a multiple of num_heads ({num_heads})")
        head_dim = embed_dim // num_heads if head_dim is None else head_dim
        if head_dim < 1:
            raise ValueError(f"head_dim must be at least 1, not {head_dim}")
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"num_heads ({num_heads}) must be a multiple of num_kv_heads ({num_kv_heads})")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        self.embed_dim, self.num_heads, self.num_kv_heads, self.head_dim = embed_dim, num_heads, num_kv_heads, head_dim
        self.qk_norm, self.dropout = qk_norm, dropout
        self.length_scaling = length_scaling_of(length_scaling)

        def projection(in_features: int, out_features: int) -> Projection:
            return Projection(in_features, out_features, bias, embed_dim, device, dtype)

        self.q_proj = projection(embed_dim, num_heads * head_dim)
        self.k_proj = projection(embed_dim, num_kv_heads * head_dim)
        self.v_proj = projection(embed_dim, num_kv_heads * head_dim)
        self.out_proj = projection(num_heads * head_dim, embed_dim)

        options = {
            "p": p,
            "eps": eps,
            "scale_init": scale_init,
            "per_head_scale": per_head_scale,
            "log_scale": log_scale,
            "normalize_value": normalize_value,
        }
        norms = kind_of(qk_norm, options).make(Heads(num_heads, head_dim, device, dtype))
        self.q_norm, self.k_norm, self.v_norm, self.softmax_scale = norms
        self.core = AttentionCore()

    def forward(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
        rotary: RotaryTables | None = None,
    ) -> Tensor:
        """Attend from `query` to itself, or to `memory`: (batch, length, dim) in, the shape of `query` out.

        memory: another sequence, or its `key_values`, computed once for many steps. attn_mask: broadcast to
        (batch, heads, queries, keys), True where a query may attend; a padding mask of shape (batch, keys) is passed
        as `mask[:, None, None, :]`. cache: self-attention only; `query` holds the new positions, which attend to all
        cached ones and, if causal, to the new ones up to themselves. rotary: (cos, sin) of the positions of `query`,
        self-attention only; see `Rotary`.
        """
        dropout = self.dropout if self.training else 0.0
        is_single = query.shape[1] == 1
        is_simple = attn_mask is None and self.length_scaling is None and not dropout
        if cache is not None and cache.is_shared and is_single and is_simple:
            return self._output(self._step_of_beams(query, memory, cache, rotary))
        q, k, v, attn_mask, is_causal = self._inputs(query, memory, attn_mask, is_causal, cache, rotary)
        if is_single and (cache is not None or isinstance(memory, KeyValues)):
            shares_keys = q.shape[1] != k.shape[1]
            return self._output(attend(q, k, v, self.softmax_scale, attn_mask, is_causal, dropout, shares_keys))
        return self._output(self.core(q, k, v, self.softmax_scale, attn_mask, is_causal, dropout)[0])

    def weights(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        rotary: RotaryTables | None = None,
    ) -> Tensor:
        """Return the attention probabilities of `forward`, without dropout: (batch, heads, queries, keys)."""
        q, k, _, attn_mask, is_causal = self._inputs(query, memory, attn_mask, is_causal, None, rotary)
        return attention_weights(q, k, self.softmax_scale, attn_mask, is_causal, q.shape[1] != k.shape[1])

    def attend_shared(self, query: Tensor, memory: KeyValues, entries: Tensor, lengths: Tensor) -> Tensor:
        """Attend from single positions to memories that several of them share, for decoding with beams.

        query: (rows, 1, dim). entries: (rows,), whose memory each attends to. lengths: (batch of the memory,), how many
        of its positions are real. The result is that of `forward` with the memory repeated and masked, without the
        copies; for inference on a CPU.
        """
        self._check(query)
        q = self._queries(query)
        if self.length_scaling is not None:
            q = q * self.length_scaling(lengths.index_select(0, entries).to(q.dtype)).view(-1, 1, 1, 1)
        return self._output(attend_to_shared(q, *memory, entries, lengths, self.softmax_scale))

    def key_values(self, memory: Tensor, *, rotary: RotaryTables | None = None) -> KeyValues:
        """Return normalised keys, and values, of (batch, length, dim). Computed once, they serve all decoding steps."""
        keys = self._normalized(self.k_norm, self.k_proj(memory), rotary)
        return KeyValues(keys, self.v_norm(self._split_heads(self.v_proj(memory))))

    def extra_repr(self) -> str:
        heads = f"{self.num_heads}, num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}"
        scaling = "" if self.length_scaling is None else f", length_scaling={self.length_scaling}"
        return f"{self.embed_dim}, {heads}, qk_norm={self.qk_norm!r}{scaling}"

    def _inputs(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        cache: KeyValueCache | None,
        rotary: RotaryTables | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool]:
        self._check(query, memory, cache, rotary)
        checks.mask(attn_mask)
        q = self._queries(query, rotary)
        if isinstance(memory, KeyValues):
            keys, values = memory
        else:
            keys, values = self.key_values(query if memory is None else memory, rotary=rotary)
        if cache is not None:
            keys, values = cache.append(KeyValues(keys, values))
            attn_mask = _of_newest(attn_mask, keys.shape[2])
        checks.mask_fits(attn_mask, q, keys)
        if cache is not None:
            visible, is_causal = cache.mask(query.shape[1], is_causal)
            attn_mask = attn_mask if visible is None else merged(attn_mask, visible)
        if self.length_scaling is not None:
            if is_causal and attn_mask is not None:
                attn_mask, is_causal = merged(attn_mask, top_left(q, keys)), False
            q = scaled_for_length(q, self.length_scaling, keys.shape[2], attn_mask, is_causal)
        return q, keys, values, attn_mask, is_causal

    def _step_of_beams(
        self, query: Tensor, memory: Tensor | KeyValues | None, cache: KeyValueCache, rotary: RotaryTables | None
    ) -> Tensor:
        """One position of each row, over positions that rows have in common: none is copied for a row of its own."""
        self._check(query, memory, cache, rotary)
        room, history = cache.append_shared(self.key_values(query, rotary=rotary))
        return attend_to_history(self._queries(query, rotary), *room, history, self.softmax_scale)

    def _check(
        self,
        query: Tensor,
        memory: Tensor | KeyValues | None = None,
        cache: KeyValueCache | None = None,
        rotary: RotaryTables | None = None,
    ) -> None:
        if query.dim() != 3 or query.shape[-1] != self.embed_dim:
            raise ValueError(f"query must be (batch, length, {self.embed_dim}), not {tuple(query.shape)}")
        if memory is not None and cache is not None:
            raise ValueError("cache is for self-attention; pass cross-attention its memory as key_values(memory)")
        if memory is not None and rotary is not None:
            raise ValueError("rotary is for self-attention: query and memory have positions of their own")

    def _queries(self, query: Tensor, rotary: RotaryTables | None = None) -> Tensor:
        return self._normalized(self.q_norm, self.q_proj(query), rotary)

    def _normalized(self, norm: nn.Module, projected: Tensor, rotary: RotaryTables | None) -> Tensor:
        """(batch, heads, length, head_dim), normalised first, then rotated."""
        return normalized(norm, self._split_heads(projected), rotary)

    def _split_heads(self, x: Tensor) -> Tensor:
        """As many heads as there are: under tensor parallelism each process has some of them."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim))  # unlike a view, it counts heads of nothing
        return heads.transpose(1, 2)

    def _output(self, attended: Tensor) -> Tensor:
        projected: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return projected


def _of_newest(attn_mask: Tensor | None, keys: int) -> Tensor | None:
    """A mask for all positions so far serves for the newest that a cache returns."""
    return attn_mask if attn_mask is None or attn_mask.shape[-1] <= keys else attn_mask[..., -keys:]


def parameter_groups(model: nn.Module, weight_decay: float, scale_lr: float | None = None) -> list[dict[str, Any]]:
    """Make optimiser groups: matrices with weight decay, the rest without, and g with its own learning rate.

    Decay would pull g, the norms' weights and the biases towards zero; they are recognised by having fewer than
    two dimensions or belonging to a module whose own name ends in "norm". Adam moves any g by about the learning
    rate per update, which is little when g is about ten: `scale_lr` puts g of every `LpNorm`, whatever its name, into a
    third group with that rate. Frozen parameters are left out, and shared ones are given once.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    scales: list[nn.Parameter] = []
    of_norms = _ids_of_g(model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_g, in_norm = id(parameter) in of_norms, name.rpartition(".")[0].endswith("norm")
            group = undecayed if is_g or in_norm or parameter.dim() < 2 else decayed
            (scales if is_g and scale_lr is not None else group).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return groups if scale_lr is None else [*groups, {"params": scales, "weight_decay": 0.0, "lr": scale_lr}]


def _ids_of_g(model: nn.Module) -> set[int]:
    norms = (module for module in model.modules() if isinstance(module, LpNorm))
    return {id(g) for norm in norms for g in (norm.scale, norm.log_scale) if g is not None}
