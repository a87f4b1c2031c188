"""Attention with p = 2 as that of a Qwen3, which transformers, vLLM and llama.cpp run.

RMSNorm is √d times division by the Euclidean length, so softmax(g · q̂k̂ᵀ) is Qwen3's softmax(q_norm(q) k_norm(k)ᵀ/√d)
with g/√d in every weight of q_norm and 1 in those of k_norm. Qwen3 also adds an eps to the mean square, the same one in
all its norms; queries and keys are made so long that it does not matter, and no longer than fits into float16.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import LpNorm
from qknorm.hf.models import TransformersAttention

_DOUBLINGS = 10  # at most, of queries and keys, which are normalised anyway: a power of two changes no digit of theirs
_LARGEST = torch.finfo(torch.float16).max / 2  # of their entries: half the range is left to rounding
_SAME_SHAPE = ("llama", "qwen3")  # families that are a Qwen3 but for their attention


@torch.no_grad()
def qwen3_attention_weights(attention: QKNormAttention, input_weight: Tensor | None = None) -> dict[str, Tensor]:
    """The state dict of a `Qwen3Attention` that does the same as a layer with qk_norm="lp", p = 2 and one g.

    input_weight: the weights of the RMSNorm before the layer, by default ones. They bound the inputs, and so how often
    queries and keys of each head can be doubled without leaving the range of float16. That range counts in every dtype,
    since a saved model may be run in another one. Without rotary positions, as in this package's `GPT`, it does the
    same where cos is 1 and sin is 0.
    """
    g = _only_g(attention)
    weights: dict[str, Tensor] = {}
    for name, projection in (("q_proj", attention.q_proj), ("k_proj", attention.k_proj)):
        factor = _lengthening(projection, attention.head_dim, input_weight)
        weights |= {f"{name}.{kind}": _times(tensor, factor) for kind, tensor in projection.state_dict().items()}
    for name, projection in (("v_proj", attention.v_proj), ("o_proj", attention.out_proj)):
        weights |= {f"{name}.{kind}": tensor.clone() for kind, tensor in projection.state_dict().items()}
    ones = weights["q_proj.weight"].new_ones(attention.head_dim)
    return {**weights, "q_norm.weight": g / math.sqrt(attention.head_dim) * ones, "k_norm.weight": ones}


def to_qwen3(model: nn.Module) -> Any:
    """A `Qwen3ForCausalLM` that does the same as a Llama or Qwen3 with our attention inside, p = 2 and one g a layer.

    Make such a model with `replace_attention(model, "lp")`, and train it. Queries and keys of the Qwen3 are longer, but
    in float16 they overflow only where they did so before: see `qwen3_attention_weights`.
    """
    from transformers import Qwen3ForCausalLM

    every = model.named_modules(remove_duplicate=False)
    layers = {name: module for name, module in every if isinstance(module, TransformersAttention)}
    _check_shape(model, layers)
    state = {name: tensor for name, tensor in model.state_dict().items() if ".self_attn." not in name}
    for name, layer in layers.items():
        before = state[f"{name.rpartition('.')[0]}.input_layernorm.weight"]
        state |= {f"{name}.{kind}": tensor for kind, tensor in qwen3_attention_weights(layer.attention, before).items()}
    first = next(model.parameters())
    qwen3 = Qwen3ForCausalLM(_qwen3_config(model.config)).to(first.device, first.dtype)
    qwen3.load_state_dict(state)
    return qwen3.train(model.training)


def _lengthening(projection: nn.Linear, head_dim: int, input_weight: Tensor | None) -> Tensor:
    """For each row, the power of two by which its head can be multiplied.

    Before its weights, what RMSNorm gives for d entries is at most √d long, which bounds the product with a row.
    """
    weight = projection.weight.float()
    rows = weight if input_weight is None else weight * input_weight.float()
    largest = rows.norm(dim=1) * math.sqrt(projection.in_features)
    if projection.bias is not None:
        largest = largest + projection.bias.float().abs()
    largest = torch.maximum(largest, weight.abs().amax(1))  # the weights themselves must fit, too
    doublings = (_LARGEST / largest.unflatten(0, (-1, head_dim)).amax(1)).log2().floor().clamp(0, _DOUBLINGS)
    return torch.exp2(doublings).repeat_interleave(head_dim).to(projection.weight.dtype)


def _times(tensor: Tensor, factor: Tensor) -> Tensor:
    """Rows of a weight, or entries of a bias, each times a factor of its own."""
    return tensor * (factor if tensor.dim() == 1 else factor[:, None])


def _qwen3_config(config: Any) -> Any:
    from transformers import Qwen3Config

    shared = {name: value for name, value in config.to_dict().items() if hasattr(Qwen3Config(), name)}
    left_out = ("model_type", "architectures", "transformers_version", "torch_dtype", "dtype")
    return Qwen3Config(**{name: value for name, value in shared.items() if name not in left_out})


def _only_g(attention: QKNormAttention) -> Tensor:
    norm = attention.q_norm
    if not isinstance(norm, LpNorm) or norm.p != 2 or norm.g is None:
        raise ValueError(f"Qwen3 divides by Euclidean lengths: p must be 2, which {norm} has not")
    if norm.g.numel() != 1:
        raise ValueError("all heads of a Qwen3 share the weights of their norm: it cannot have a g for each head")
    if not isinstance(attention.v_norm, nn.Identity) or attention.length_scaling is not None:
        raise ValueError("Qwen3 neither normalises values nor lets g grow with the length")
    return norm.g


def _check_shape(model: nn.Module, layers: dict[str, TransformersAttention]) -> None:
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family not in _SAME_SHAPE or not layers or not hasattr(model, "lm_head"):
        raise ValueError(
            f"a {type(model).__name__} cannot be a Qwen3 with rotary positions, RMSNorm and a gated feed-forward: a "
            'LlamaForCausalLM with replace_attention(model, "lp") can; qwen3_attention_weights converts attention alone'
        )
    if getattr(model.config, "mlp_bias", False):
        raise ValueError("the feed-forward of a Qwen3 has no biases: the model must have mlp_bias=False")
