"""How the families of transformers normalise queries and keys, each as one `QKNormSpec`.

A new family is a line in `FAMILIES`. Nothing here imports transformers: a config is read by its attributes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from qknorm.attention.norms import Heads, Norms
from qknorm.hf.norms import AllHeadsRMSNorm, OffsetRMSNorm, PerHeadLayerNorm, RotaryFirstRMSNorm
from qknorm.ops.rotary import Pairing


@dataclass(frozen=True)
class QKNormSpec:
    """How a model normalises queries and keys. It is also a kind: `QKNormAttention(…, qk_norm=spec)` does the same.

    norm: "rms", "layer" or None.
    over: one "head" at a time, or "all heads" of a position together.
    weights: one for each "dim" of what is normalised, the same for all heads; one for each "head and dim"; or "none".
    offset: what is added to them, 1 where they start at zero.
    rotary: rotated "after" the norm or "before" it, or None without rotary positions. pairing: which entries are
    turned together. backwards: turned by the negative angle.
    softmax_scale: the factor of the logits, with fixed factors of the queries. layers, rotary_layers: where there is
    a norm and where there is a rotation. q_norm, k_norm: what the modules are called in a layer.
    """

    family: str
    norm: Literal["rms", "layer"] | None = None
    over: Literal["head", "all heads"] = "head"
    weights: Literal["dim", "head and dim", "none"] = "none"
    offset: float = 0.0
    bias: bool = False
    rotary: Literal["after", "before"] | None = "after"
    pairing: Pairing = "half"
    backwards: bool = False
    q_norm: str = "q_norm"
    k_norm: str = "k_norm"
    eps: float = 0.0
    softmax_scale: float = 1.0
    num_heads: int = 1
    num_kv_heads: int = 1
    head_dim: int = 1
    layers: tuple[int, ...] = ()
    rotary_layers: tuple[int, ...] = ()

    def at(self, layer: int | None) -> QKNormSpec:
        """The same for one layer, where a model does not treat all of them alike; None for any of them."""
        if layer is None or (self.norm is None and self.rotary is None):
            return self
        rotary = self.rotary if layer in self.rotary_layers else None
        spec = self if layer in self.layers else _without_norm(self)
        return dataclasses.replace(spec, rotary=rotary)

    def starting_scale(self) -> float | None:
        """g of softmax(g · q̂k̂ᵀ) when training starts, with the weights of the norms at one; None without a norm.

        A normalised query of d entries has the length √d, so g is d times the softmax scale. Over all heads together
        this is so for heads of equal length; with LayerNorm, q̂ and k̂ are what is left after their means are taken away.
        """
        return None if self.norm is None else self.softmax_scale * self.head_dim

    def make(self, heads: Heads) -> Norms:
        """The norms, at their start."""
        if (heads.number, heads.dim) != (self.num_heads, self.head_dim):
            has = f"{self.num_heads} heads of {self.head_dim} dimensions"
            raise ValueError(f"this {self.family} has {has}, not {heads.number} of {heads.dim}")
        query, key = (self._norm(heads._replace(number=number)) for number in (self.num_heads, self.num_kv_heads))
        return Norms(query, key, nn.Identity(), self.softmax_scale)

    def _norm(self, heads: Heads) -> nn.Module:
        where: dict[str, Any] = {"device": heads.device, "dtype": heads.dtype}
        if self.norm is None:
            return nn.Identity()
        if self.offset:
            return self._offset_norm(heads, where)
        if self.over == "all heads":
            return AllHeadsRMSNorm(heads.number * heads.dim, self.eps, **where)
        if self.weights == "head and dim":
            return PerHeadLayerNorm(heads.number, heads.dim, self.eps, self.bias, **where)
        if self.norm == "layer":
            return nn.LayerNorm(heads.dim, self.eps, **where)
        rms = RotaryFirstRMSNorm if self.rotary == "before" else nn.RMSNorm
        return rms(heads.dim, self.eps, elementwise_affine=self.weights == "dim", **where)

    def _offset_norm(self, heads: Heads, where: dict[str, Any]) -> nn.Module:
        if (self.norm, self.over, self.weights) != ("rms", "head", "dim") or self.rotary == "before":
            raise NotImplementedError(f"weights of {self.family} have an offset, which only RMSNorm of each head adds")
        return OffsetRMSNorm(heads.dim, self.eps, self.offset, **where)


def spec_of(config: Any) -> QKNormSpec:
    """How the model of a transformers config normalises queries and keys; of its text, if it also reads images."""
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    family = FAMILIES.get(config.model_type)
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise ValueError(
            f"how {config.model_type!r} normalises queries and keys is not known to qknorm.hf, or no QKNormAttention "
            f"does the same; it knows {known}"
        )
    return family.spec(config)


@dataclass(frozen=True)
class _Family:
    """What all models of a family share, and which keys of their configs say the rest.

    switch: the key that turns the norm on, where one does. eps: its key, or the number itself.
    scaling: the softmax scale from a config and head_dim.
    """

    shared: dict[str, Any]
    switch: str | None = None
    eps: str | float = "rms_norm_eps"
    scaling: Callable[[Any, int], float] = lambda config, head_dim: head_dim**-0.5  # noqa: ARG005
    no_norm_without_rotary: bool = False

    def spec(self, config: Any) -> QKNormSpec:
        spec = QKNormSpec(config.model_type, **self.shared, **heads_of(config))
        scale = self.scaling(config, spec.head_dim)
        spec = dataclasses.replace(spec, softmax_scale=scale, **self._layers(config))
        if spec.norm is None or (self.switch is not None and not getattr(config, self.switch)):
            return _without_norm(spec)
        eps = getattr(config, self.eps) if isinstance(self.eps, str) else self.eps
        return dataclasses.replace(spec, eps=eps)

    def _layers(self, config: Any) -> dict[str, Any]:
        every = tuple(range(config.num_hidden_layers))
        rotary = tuple(layer for layer in every if _is_rotary(config, layer))
        return {"layers": rotary if self.no_norm_without_rotary else every, "rotary_layers": rotary}


def heads_of(config: Any) -> dict[str, Any]:
    """How many heads a model has for queries and for keys, and their size."""
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}


def _is_rotary(config: Any, layer: int) -> bool:
    """Of `no_rope_layers`, which has a one where there is a rotation, against its name; or of bases of angles."""
    rotary = getattr(config, "no_rope_layers", None) or getattr(config, "layer_rope_theta", None)
    return rotary is None or bool(rotary[layer])


def _without_norm(spec: QKNormSpec) -> QKNormSpec:
    return dataclasses.replace(spec, norm=None, over="head", weights="none", offset=0.0, bias=False, layers=())


_PLAIN: dict[str, Any] = {}
_RMS: dict[str, Any] = {"norm": "rms", "weights": "dim"}
_RMS_ALL_HEADS = {**_RMS, "over": "all heads"}
_LAYER: dict[str, Any] = {
    "norm": "layer",
    "weights": "dim",
    "bias": True,
    "q_norm": "q_layernorm",
    "k_norm": "k_layernorm",
}
_ONE_MODULE = {"norm": "rms", "q_norm": "qk_norm", "k_norm": "qk_norm"}

FAMILIES: dict[str, _Family] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "gemma"), _Family(_PLAIN)),
    **dict.fromkeys(("qwen3", "qwen3_moe", "dots1", "apertus"), _Family(_RMS)),
    "glm4_moe": _Family(_RMS, switch="use_qk_norm"),
    "gemma3_text": _Family(
        {**_RMS, "offset": 1.0}, scaling=lambda config, _: float(config.query_pre_attn_scalar) ** -0.5
    ),
    **dict.fromkeys(("olmo2", "olmo3", "flex_olmo", "minimax_m2"), _Family(_RMS_ALL_HEADS)),
    "cohere": _Family(
        {"norm": "layer", "weights": "head and dim", "pairing": "interleaved"}, "use_qk_norm", "layer_norm_eps"
    ),
    "chameleon": _Family({"norm": "layer", "weights": "head and dim", "bias": True}, eps=1e-5),
    "stablelm": _Family({**_LAYER, "weights": "head and dim", "bias": False}, "qk_layernorm", "layer_norm_eps"),
    **dict.fromkeys(("persimmon", "phi"), _Family(_LAYER, "qk_layernorm", "layer_norm_eps")),
    "llama4_text": _Family(
        {**_ONE_MODULE, "rotary": "before", "pairing": "interleaved"}, "use_qk_norm", no_norm_without_rotary=True
    ),
    "nanochat": _Family({"norm": "rms", "rotary": "before", "backwards": True}),
    "hunyuan_v1_dense": _Family(
        {**_RMS, "rotary": "before", "q_norm": "query_layernorm", "k_norm": "key_layernorm"},
    ),
}
