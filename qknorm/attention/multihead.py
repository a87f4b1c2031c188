"""MultiheadAttention: torch's own module of that name, with normalised queries and keys.

Outside it is torch's: arguments, masks (True = may not attend), results, errors, weight names. Inside, tensors are
(batch, heads, length, head_dim) and masks have this library's meaning, True = may attend.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from qknorm.attention.core import AttentionCore
from qknorm.attention.norms import Heads, PlainKind, QKNorm, kind_of, normalized
from qknorm.attention.torch_masks import check_kinds, merged_mask

# Looked up once: whole programs get this module where somebody sets nn.MultiheadAttention to it.
_TorchMultiheadAttention = nn.MultiheadAttention
_check_shapes = F._mha_shape_check  # type: ignore[attr-defined]


class OutProjection(NonDynamicallyQuantizableLinear):
    """The output projection of torch's module, which starts by itself as it starts there: without biases."""

    def reset_parameters(self) -> None:
        """Draw weights, and biases as well, as torch does before it sets them to zero: one seed gives one start."""
        super().reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class MultiheadAttention(_TorchMultiheadAttention):
    """`torch.nn.MultiheadAttention` with softmax(g · q̂ k̂ᵀ) v instead of softmax(q kᵀ / √head_dim) v.

    The arguments up to `dtype` are torch's, and so is `forward`. The others, keyword-only, are those of
    `QKNormAttention`; eps defaults to the norm's own. `qk_norm=None` is torch's module itself.
    `bias_k` is normalised like any other key; the key that `add_zero_attn` adds stays zero. A query that may attend to
    nothing gets zeros, where torch returns NaN if weights are needed. Values are normalised if the kind says so.
    A state dict of torch's module lacks only the norms' parameters: load it with `strict=False`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        qk_norm: QKNorm | None = "lp",
        p: float = 2.0,
        scale_init: float | None = None,
        per_head_scale: bool = False,
        eps: float | None = None,
    ) -> None:
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        options = {"p": p, "eps": eps, "scale_init": scale_init, "per_head_scale": per_head_scale}
        kind = kind_of(qk_norm, options)
        self.qk_norm = None if isinstance(kind, PlainKind) else qk_norm
        norms = kind.make(Heads(num_heads, self.head_dim, device, dtype))
        self.q_norm, self.k_norm, self.v_norm, self.softmax_scale = norms
        self.core = AttentionCore()
        self.out_proj = _starting_by_itself(self.out_proj)
        if self.qk_norm is not None:
            # For inference torch's encoder layers compute attention from the weights, without calling this module or
            # its norms, unless there is a hook that would be passed over.
            self.register_forward_pre_hook(_is_to_be_called)

    def reset_parameters(self) -> None:
        """Draw the weights of queries, keys and values again, as torch does; norms and `out_proj` reset themselves."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "in_proj_bias":
                nn.init.zeros_(parameter)
            elif name in ("bias_k", "bias_v"):
                nn.init.xavier_normal_(parameter)
            else:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `query` to `key` and `value`; return the result, and the weights if needed.

        query, key, value: (length, dim), or (length, batch, dim), or (batch, length, dim) with `batch_first`; nested
        tensors too. key_padding_mask: (keys,) or (batch, keys). attn_mask: (queries, keys) or (batch · heads, queries,
        keys). Masks are True where a query may not attend, or floats to add. is_causal: a hint that
        `attn_mask`, which must be given, is the causal one. The weights, (batch, queries, keys), are the mean over
        heads; without `average_attn_weights` they are (batch, heads, queries, keys).
        """
        if self.qk_norm is None:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        self._check(query, key, value, key_padding_mask, attn_mask, is_causal)
        if query.is_nested:
            key_padding_mask = _padding(key)
        q, k, v = self._projected(query, key, value)
        out, weights = self._attend(q, k, v, key_padding_mask, need_weights, attn_mask, is_causal)
        return self._laid_out_like(query, self.out_proj(out), weights, average_attn_weights)

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Refuse, where the result would be wrong, to let torch compute attention by itself."""
        if self.qk_norm is not None:
            raise RuntimeError(
                "torch is about to compute attention without query-key normalisation, because the hooks of this "
                "module were removed: call torch.backends.mha.set_fastpath_enabled(False)"
            )
        return super().merge_masks(attn_mask, key_padding_mask, query)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}, qk_norm={self.qk_norm!r}"

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, (batch, length, dim); those of self-attention by one product."""
        if query is key and key is value and self.in_proj_weight is not None:
            return self._batch_first(F.linear(query, self.in_proj_weight, self.in_proj_bias)).chunk(3, dim=-1)
        weights: tuple[Tensor, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        sides = zip((query, key, value), weights, biases, strict=True)
        return tuple(self._batch_first(F.linear(*side)) for side in sides)

    def _batch_first(self, side: Tensor) -> Tensor:
        if side.is_nested:
            return side.to_padded_tensor(0.0)
        if side.dim() == 2:
            return side.unsqueeze(0)
        return side if self.batch_first else side.transpose(0, 1)

    def _laid_out_like(
        self, query: Tensor, out: Tensor, weights: Tensor | None, average: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The results in the layout of the query."""
        if weights is not None and query.is_nested:
            weights = weights.masked_fill(_padding(query)[:, None, :, None], 0)
        if weights is not None and average:
            weights = weights.mean(1)
        if query.is_nested:
            return _nested_like(query, out), weights
        if query.dim() == 2:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """From (batch, length, dim) to the same, and the weights of each head where they are needed."""
        is_causal = is_causal and key_padding_mask is None and not need_weights and not self._added_keys
        shape = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        mask = None if is_causal else merged_mask(attn_mask, key_padding_mask, shape, self._added_keys, query.dtype)
        q, k, v = self._heads(query, *self._with_biases(key, value))
        dropout = self.dropout if self.training else 0.0
        out, weights = self.core(q, k, v, self.softmax_scale, mask, is_causal, dropout, need_weights)
        return out.transpose(1, 2).flatten(2), weights

    def _with_biases(self, key: Tensor, value: Tensor) -> list[Tensor]:
        """Keys and values, with `bias_k` and `bias_v` at the end of each sequence if there are any."""
        if self.bias_k is None or self.bias_v is None:
            return [key, value]
        sides = ((key, self.bias_k), (value, self.bias_v))
        return [torch.cat([side, bias.expand(side.shape[0], 1, -1)], dim=1) for side, bias in sides]

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised queries and keys, and values as their kind wants them, (batch, heads, length, head_dim)."""
        q, k, v = (side.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for side in (query, key, value))
        q, k, v = normalized(self.q_norm, q), normalized(self.k_norm, k), self.v_norm(v)
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
        return q, k, v

    @property
    def _added_keys(self) -> int:
        return int(self.bias_k is not None) + int(self.add_zero_attn)

    def _check(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> None:
        """Raise what torch's module raises, in its words: other people's programs know them."""
        check_kinds(attn_mask, key_padding_mask)
        _check_shapes(query, key, value, key_padding_mask, attn_mask, self.num_heads)
        if query.is_nested or key.is_nested or value.is_nested:
            self._check_nested(query, key, value, key_padding_mask, attn_mask)
        if is_causal and attn_mask is None:
            raise RuntimeError(
                "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                "`generate_square_subsequent_mask` to create this mask."
            )
        self._check_sizes(query, key, value)

    def _check_sizes(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.size(-1) != self.embed_dim:
            raise AssertionError(f"was expecting embedding dimension of {self.embed_dim}, but got {query.size(-1)}")
        if query.is_nested:
            return
        if self.in_proj_weight is not None and key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if key.shape[:-1] != value.shape[:-1]:
            mismatch = f"{key.shape[:-1]} do not match value's {value.shape[:-1]}"
            raise AssertionError(f"key's sequence and batch dims {mismatch}")
        for name, side, weight in (("key", key, self.k_proj_weight), ("value", value, self.v_proj_weight)):
            if weight is not None and side.size(-1) != weight.size(-1):
                expected = (self.embed_dim, side.size(-1))
                raise AssertionError(f"expecting {name} weights shape of {expected}, but got {weight.shape}")
        batch = 0 if self.batch_first else 1
        if query.dim() == 3 and query.shape[batch] != key.shape[batch]:
            raise RuntimeError(f"query has a batch of {query.shape[batch]}, but key and value of {key.shape[batch]}")

    def _check_nested(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> None:
        why = ""
        if not (query.is_nested and key.is_nested and value.is_nested):
            why = "query, key and value are not all nested"
        elif not self.batch_first:
            why = "batch_first was not True"
        elif key_padding_mask is not None or attn_mask is not None:
            why = "a mask was given"
        elif not torch.equal(_padding(key), _padding(value)):
            why = "key and value have sequences of different lengths"
        if why:
            raise AssertionError(f"MultiheadAttention does not support NestedTensor here, because {why}")


def _starting_by_itself(projection: nn.Linear) -> OutProjection:
    """The same parameters; on "meta" nothing is drawn for others."""
    has_bias = projection.bias is not None
    ours = OutProjection(projection.in_features, projection.out_features, has_bias, device="meta")
    ours.weight, ours.bias = projection.weight, projection.bias
    return ours


def _padding(nested: Tensor) -> Tensor:
    """(batch, length): where a nested tensor has nothing once it is padded."""
    lengths = torch.tensor([len(sequence) for sequence in nested.unbind()], device=nested.device)
    return torch.arange(int(lengths.max()), device=nested.device) >= lengths[:, None]


def _nested_like(nested: Tensor, padded: Tensor) -> Tensor:
    """What is padded, nested again; jagged tensors can be added only if they share their offsets."""
    real = ~_padding(nested)
    if nested.layout is torch.jagged:
        return torch.nested.nested_tensor_from_jagged(padded[real], nested.offsets())  # type: ignore[attr-defined]
    sequences = [sequence[positions] for sequence, positions in zip(padded, real, strict=True)]
    return torch.nested.as_nested_tensor(sequences, layout=torch.strided)


def _is_to_be_called(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    """A hook that does nothing: that it exists says that the module has to be called."""
