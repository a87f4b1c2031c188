"""Beam search by one operator for a whole model, on a CPU: many times as fast as one operation after the other.

What is computed for a sentence does not depend on its company, so translations are the same in any batch, to the last
bit; threads have sentences of their own. A model that has a part which is not known here is left to `Search` of
`beam.py`, which defines what is to be found.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.attention.core import AttentionCore
from qknorm.attention.module import Projection, QKNormAttention
from qknorm.attention.norms import LpNorm
from qknorm.data.subwords import EOS
from qknorm.models.ensemble import Stepwise
from qknorm.models.half import HalfLinear, HalfVocabularyLoss
from qknorm.models.layers import Embedding, FeedForward, Residual, VocabularyLoss
from qknorm.models.translator import DecoderLayer, Direction, EncoderLayer, TranslatorModel
from qknorm.ops.beam_search import NORMS, PANEL, PackedModel, Precision, is_available

_KNOWN = frozenset(
    {
        TranslatorModel,
        EncoderLayer,
        DecoderLayer,
        Residual,
        QKNormAttention,
        Projection,
        AttentionCore,
        FeedForward,
        Embedding,
        VocabularyLoss,
        HalfLinear,
        HalfVocabularyLoss,
        LpNorm,
        nn.Linear,
        nn.LayerNorm,
        nn.RMSNorm,
        nn.Identity,
        nn.ModuleList,
    }
)
_LEAST_ROOM, _MOST_ROOM = 256, 1 << 16


@dataclass(frozen=True)
class _Kept:
    """A packed model, for positions below `room`, and what it was made from."""

    state: tuple[object, ...]
    room: int
    packed: PackedModel


_KEPT: weakref.WeakKeyDictionary[TranslatorModel, dict[tuple[Direction, Precision], _Kept]]
_KEPT = weakref.WeakKeyDictionary()


@torch.no_grad()
def packed_model(model: Stepwise, direction: Direction, precision: Precision, positions: int) -> PackedModel | None:
    """The weights as the operator wants them, packed anew when they have changed; None if it cannot run this model."""
    state = _state(model) if isinstance(model, TranslatorModel) else None
    if not isinstance(model, TranslatorModel) or state is None or positions > _MOST_ROOM or not is_available():
        return None
    kept = _KEPT.setdefault(model, {})
    found = kept.get((direction, precision))
    if found is None or found.state != state or found.room < positions:
        room = max(_LEAST_ROOM, 1 << (positions - 1).bit_length())
        found = kept[direction, precision] = _Kept(state, room, _packed(model, direction, precision, room))
    return found.packed


def _state(model: TranslatorModel) -> tuple[object, ...] | None:
    """By what a change of weights shows; None if there is a part that is not known, or somebody who watches."""
    parts: list[object] = [getattr(model, "times_trained", 0)]
    for module in _modules(model):
        if type(module) not in _KNOWN or module._forward_hooks or module._forward_pre_hooks or module.training:
            return None
        if isinstance(module, nn.LayerNorm | nn.RMSNorm | QKNormAttention) and not _is_plain(module):
            return None
        for tensor in module._parameters.values():
            if tensor is not None:
                if tensor.device.type != "cpu" or tensor.dtype != torch.float32 or tensor.is_inference():
                    return None
                parts += (tensor.data_ptr(), tensor._version)
    return tuple(parts)


def _modules(module: nn.Module) -> Iterator[nn.Module]:
    """As `modules()`, in a tenth of its time, which is asked for with every sentence."""
    waiting: list[nn.Module] = [module]
    while waiting:
        module = waiting.pop()
        yield module
        waiting += (child for child in module._modules.values() if child is not None)


def _is_plain(module: nn.Module) -> bool:
    if isinstance(module, QKNormAttention):
        return (
            module.num_heads == module.num_kv_heads
            and module.num_heads * module.head_dim == module.embed_dim
            and module.length_scaling is None
        )
    return module.weight is not None and (isinstance(module, nn.RMSNorm) or module.bias is not None)


def _packed(model: TranslatorModel, direction: Direction, precision: Precision, room: int) -> PackedModel:
    config, packed = model.config, PackedModel(precision)
    vectors = model.embedding.vectors()
    packed.integers += (config.dim, config.heads, config.feed_forward, precision == "int8", config.placement == "pre")
    packed.integers.append(len(vectors))
    packed.floats(vectors * model.embedding.input_scale)
    for number in (direction.source_number, direction.target_number):
        packed.integers.append(room)
        packed.floats(model.languages[number] + model.positions(room, model.languages, 0))
    for layers, last in ((model.encoder, model.encoder_norm), (model.decoder, model.decoder_norm)):
        packed.integers.append(len(layers))
        for layer in layers:
            _layer(packed, layer)
        _norm(packed, last)
    vocabulary = model.target_vocabulary(direction)
    packed.integers.append(len(vocabulary))
    packed.matrix(vectors[vocabulary], model.embedding.output_bias[vocabulary])
    packed.tensors.append(vocabulary)
    packed.integers.append(int((vocabulary == EOS).nonzero()))
    return packed


def _layer(packed: PackedModel, layer: nn.Module) -> None:
    assert isinstance(layer, EncoderLayer | DecoderLayer)
    _norm(packed, layer.attention_residual.norm)
    own = layer.attention
    packed.numbers.append(own.softmax_scale)
    _linear(packed, own.q_proj, own.k_proj, own.v_proj)
    _heads(packed, own)
    if isinstance(layer, DecoderLayer):
        _norm(packed, layer.source_attention_residual.norm)
        source = layer.source_attention
        packed.numbers.append(source.softmax_scale)
        _linear(packed, source.q_proj)
        _linear(packed, source.k_proj, source.v_proj)
        _heads(packed, source)
    _norm(packed, layer.feed_forward_residual.norm)
    _linear(packed, layer.feed_forward.inner)
    _linear(packed, layer.feed_forward.outer)


def _linear(packed: PackedModel, *linears: nn.Linear) -> None:
    """Several linear maps of the same input as one."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [
        linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias for linear in linears
    ]
    packed.matrix(torch.cat(weights), torch.cat(biases))


def _heads(packed: PackedModel, attention: QKNormAttention) -> None:
    """The projection from heads, which are padded to whole panels, and their norms."""
    by_head = attention.out_proj.weight.reshape(-1, attention.num_heads, attention.head_dim)
    packed.matrix(F.pad(by_head, (0, -attention.head_dim % PANEL)).flatten(1), attention.out_proj.bias)
    for norm in (attention.q_norm, attention.k_norm, attention.v_norm):
        _norm(packed, norm)


def _norm(packed: PackedModel, norm: nn.Module) -> None:
    kind, p, eps, tensors = _parts_of(norm)
    packed.integers.append(NORMS.index(kind))
    packed.numbers += (p, eps)
    if isinstance(norm, LpNorm):
        packed.integers += (len(tensors), *(tensor.numel() > 1 for tensor in tensors))
    for tensor in tensors:
        packed.floats(tensor)


def _parts_of(norm: nn.Module) -> tuple[str, float, float, list[Tensor]]:
    """Kind, exponent, eps and parameters."""
    if isinstance(norm, LpNorm):
        return "lp", norm.p, norm.eps, [] if norm.g is None else [norm.g]
    if isinstance(norm, nn.LayerNorm):
        return "layer", 0.0, norm.eps, [norm.weight, norm.bias]
    if isinstance(norm, nn.RMSNorm):
        return "rms", 0.0, torch.finfo(torch.float32).eps if norm.eps is None else norm.eps, [norm.weight]
    return "none", 0.0, 0.0, []
