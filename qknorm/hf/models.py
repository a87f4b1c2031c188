"""Whole models of transformers with our attention inside: replaced, trained, generated from, and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from qknorm.attention.cache import KeyValueCache, KeyValues
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import QKNorm
from qknorm.hf.layers import from_hf, restore_hf, spec_at
from qknorm.hf.spec import QKNormSpec
from qknorm.ops.rotary import Rotary


class TransformersAttention(nn.Module):
    """A `QKNormAttention` behind the call of a module of transformers, in whose place it stands in a model."""

    def __init__(self, original: nn.Module, qk_norm: QKNorm | None = None) -> None:
        super().__init__()
        self.attention = from_hf(original, qk_norm=qk_norm)
        self.spec = spec_at(original)
        self.config: Any = original.config
        self.layer_idx = int(original.layer_idx)  # type: ignore[arg-type]
        self.is_causal = bool(original.is_causal)
        self.original_class: Callable[..., nn.Module] = type(original)
        self.train(original.training)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """(batch, length, dim) in and out; the second of the two, weights to look at, is never made."""
        if attention_mask is not None and attention_mask.dim() != 4:
            raise ValueError('attention of qknorm needs masks as sdpa has them: choose attn_implementation="sdpa"')
        cache = None if past_key_values is None else TransformersCache(past_key_values, self.layer_idx)
        attended = self.attention(
            hidden_states,
            attn_mask=attention_mask,
            is_causal=self.is_causal and attention_mask is None,
            cache=cache,
            rotary=rotary_of(self.spec, position_embeddings),
        )
        return attended, None

    def restored(self) -> nn.Module:
        """A module of transformers with the numbers of this one."""
        weight = self.attention.q_proj.weight
        original = self.original_class(self.config, self.layer_idx).to(weight.device, weight.dtype)
        restore_hf(self.attention, original)
        return original


class TransformersCache(KeyValueCache):
    """One layer of a cache of transformers, of any kind, as a `KeyValueCache`; masks come from transformers."""

    def __init__(self, past_key_values: Any, layer: int) -> None:
        super().__init__()
        self._past, self._layer = past_key_values, layer

    def append(self, new: KeyValues) -> KeyValues:
        return KeyValues(*self._past.update(*new, self._layer))

    def mask(self, queries: int, is_causal: bool) -> tuple[Tensor | None, bool]:
        return None, is_causal and queries > 1


def rotary_of(spec: QKNormSpec, position_embeddings: Any) -> Rotary | None:
    """Cosines and sines as this library has them; Llama 4 has complex numbers, and NanoChat turns the other way."""
    if spec.rotary is None or position_embeddings is None:
        return None
    if isinstance(position_embeddings, Tensor):
        position_embeddings = torch.view_as_real(position_embeddings).repeat_interleave(2, -2).unbind(-1)
    cos, sin = position_embeddings
    return Rotary(cos, -sin if spec.backwards else sin, spec.pairing)


def replace_attention(model: nn.Module, qk_norm: QKNorm | None = None) -> int:
    """Put our attention in the place of every attention module of a decoder, and say how many there were.

    Its numbers stay the same, unless `qk_norm` names another kind of norm to train with. Frozen parameters stay
    frozen, and a module that layers share stays one. Do it before an optimiser is made: the parameters are new.
    """
    return _exchange(model, _is_original, lambda original: TransformersAttention(original, qk_norm))


def restore_attention(model: nn.Module) -> int:
    """The reverse of `replace_attention`, with the numbers that our attention has by now."""
    return _exchange(model, lambda module: isinstance(module, TransformersAttention), lambda ours: ours.restored())


def attention_layers(model: nn.Module) -> Iterator[QKNormAttention]:
    """Our attention of every layer of a model in which `replace_attention` put it."""
    return (module.attention for module in model.modules() if isinstance(module, TransformersAttention))


def is_attention(module: nn.Module) -> bool:
    """Whether this is the self-attention of a decoder layer of transformers: one that knows which layer's it is."""
    return "Attention" in type(module).__name__ and hasattr(module, "layer_idx") and hasattr(module, "is_causal")


def _is_original(module: nn.Module) -> bool:
    return is_attention(module) and not isinstance(module, TransformersAttention)


def _exchange(model: nn.Module, is_old: Callable[[nn.Module], bool], new_of: Callable[[Any], nn.Module]) -> int:
    """Put a new module wherever an old one is; one that several layers share stays one."""
    new = {old: new_of(old) for old in model.modules() if old is not model and is_old(old)}
    if not new:
        raise ValueError(f"a {type(model).__name__} has no attention modules to exchange")
    places = [(path, old) for path, old in model.named_modules(remove_duplicate=False) if old in new]
    for path, old in places:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, new[old])
    return len(new)
