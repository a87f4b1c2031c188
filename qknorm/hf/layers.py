"""Attention modules of transformers as `QKNormAttention` and back, with the same numbers.

Equal means equal but for rounding: in half precision some families round between the norm and its weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from qknorm.attention.length import LengthScaling
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import QKNorm
from qknorm.hf.norms import Llama4Length
from qknorm.hf.spec import QKNormSpec, spec_of
from qknorm.hf.weights import Weights, ours_from_theirs, theirs_from_ours


def from_hf(module: nn.Module, config: Any = None, *, qk_norm: QKNorm | None = None) -> QKNormAttention:
    """A `QKNormAttention` with the numbers of an attention module of transformers, which stays as it is.

    config: of the model, by default the module's own. qk_norm: a kind, such as "lp", that takes the place of the
    module's norms; the projections are kept, and the model is one to be trained further.
    """
    config = _config_of(module, config)
    spec = spec_at(module, config)
    ours = ours_from_theirs(module.state_dict(), spec)
    _check(module, ours)
    weight = ours["q_proj.weight"]
    layer = QKNormAttention(
        weight.shape[1],
        spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        qk_norm=spec if qk_norm is None else qk_norm,
        length_scaling=_length_scaling(module),
        dropout=float(getattr(config, "attention_dropout", 0.0)),
        device=weight.device,
        dtype=weight.dtype,
    )
    for name, projection in layer.named_children():
        if isinstance(projection, nn.Linear) and f"{name}.bias" not in ours:
            projection.register_parameter("bias", None)
    kept = ours if qk_norm is None else {name: tensor for name, tensor in ours.items() if "norm" not in name}
    _fill(layer, kept, ours_from_theirs(_trained(module), spec), strict=qk_norm is None)
    return layer.train(module.training)


def to_hf(layer: QKNormAttention, module: nn.Module, config: Any = None) -> None:
    """Write the numbers of a layer that `from_hf` made, perhaps trained since, into a module of the same family.

    The module keeps its dtypes, and what is frozen in it.
    """
    spec = _common_spec(layer, module, config)
    module.load_state_dict(theirs_from_ours(layer.state_dict(), spec, module.state_dict()))


def restore_hf(layer: QKNormAttention, module: nn.Module) -> None:
    """Do the same for a new module, which takes over dtypes, and what is frozen, from the layer."""
    spec, names = _common_spec(layer, module), module.state_dict().keys()
    weights, trained = (theirs_from_ours(state, spec, names) for state in (layer.state_dict(), _trained(layer)))
    _fill(module, weights, trained)
    module.train(layer.training)


def spec_at(module: nn.Module, config: Any = None) -> QKNormSpec:
    """The convention of one attention module."""
    layer: int | None = getattr(module, "layer_idx", None)
    return spec_of(_config_of(module, config)).at(layer)


def _common_spec(layer: QKNormAttention, module: nn.Module, config: Any = None) -> QKNormSpec:
    spec = spec_at(module, config)
    if layer.qk_norm != spec:
        raise ValueError(
            f"the numbers of a layer with qk_norm={layer.qk_norm!r} do not fit into a {type(module).__name__}"
        )
    return spec


def _trained(module: nn.Module) -> Weights:
    """For each element of each parameter whether it is trained, so that it can go the way of the weights."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {name: torch.tensor(weight.requires_grad).expand(weight.shape) for name, weight in parameters}


def _fill(module: nn.Module, weights: Weights, trained: Weights, strict: bool = True) -> None:
    """Give a new module copies of weights in their own dtypes, and freeze those of which nothing is trained."""
    copies = {name: tensor.clone() for name, tensor in weights.items()}
    module.load_state_dict(copies, strict=strict, assign=True)
    for name in weights:
        module.get_parameter(name).requires_grad_(bool(trained[name].any()))


def _config_of(module: nn.Module, config: Any) -> Any:
    config = getattr(module, "config", None) if config is None else config
    if config is None:
        raise ValueError(f"a {type(module).__name__} has no config of its own: give from_hf that of its model")
    return config


def _check(module: nn.Module, ours: dict[str, Any]) -> None:
    missing = [name for name in ("q_proj", "k_proj", "v_proj", "out_proj") if f"{name}.weight" not in ours]
    if missing:
        raise ValueError(f"a {type(module).__name__} is not an attention module: it has no {', '.join(missing)}")


def _length_scaling(module: nn.Module) -> LengthScaling | None:
    """Llama 4's layers without rotary positions attend more sharply in long texts."""
    if getattr(module, "attn_temperature_tuning", False) and not getattr(module, "use_rope", True):
        return Llama4Length(float(module.attn_scale), float(module.floor_scale))  # type: ignore[arg-type]
    return None
