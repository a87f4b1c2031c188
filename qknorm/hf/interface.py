"""`attn_implementation="qknorm"`: Lp-normalised queries and keys in any decoder of transformers, by its own registry.

The registry hands over queries and keys that are already rotated. A rotation keeps Euclidean lengths, so for p = 2
this is the norm before the rotation. For other p it is not: attention then depends on where in the text two tokens
stand, not only on how far apart. `replace_attention(model, "lp")` has the right order for every p.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from qknorm.attention.core import AttentionCore
from qknorm.attention.graft import finds_query_norm
from qknorm.attention.norms import Heads, LpKind
from qknorm.errors import needs
from qknorm.hf.models import is_attention
from qknorm.hf.spec import heads_of
from qknorm.ops.attention import attend

NAME = "qknorm"


def register() -> None:
    """Make `attn_implementation="qknorm"` known to transformers, with the masks of "sdpa"."""
    with needs("hf", "attn_implementation"):
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, qknorm_attention_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def add_lp_norms(model: Any, *, p: float = 2.0, scale_init: float | None = None, per_head_scale: bool = False) -> int:
    """Give every attention module of a decoder norms with a g to learn, and let it attend with them.

    scale_init: where g starts, by default as sharp as plain attention over queries and keys of unit variance.
    Returns the number of layers. Do it before an optimiser is made or weights with a g are loaded.
    """
    layers = [module for module in model.modules() if is_attention(module)]
    if not layers:
        raise ValueError(f"a {type(model).__name__} has no attention modules to normalise")
    if p != 2:
        warnings.warn(
            f'p = {p:g} after rotary positions is not what it is before them: replace_attention(model, "lp") is exact',
            stacklevel=2,
        )
    kind = LpKind(p=p, scale_init=scale_init, per_head_scale=per_head_scale)
    heads = heads_of(model.config.get_text_config())
    for layer in layers:
        weight = next(layer.parameters())
        norms = kind.make(Heads(heads["num_heads"], heads["head_dim"], weight.device, weight.dtype))
        layer.lp_q_norm, layer.lp_k_norm, layer.lp_core = norms.query, norms.key, AttentionCore()
    register()
    model.set_attn_implementation(NAME)
    return len(layers)


@finds_query_norm
def _norm_in_use(layer: nn.Module) -> nn.Module | None:
    is_chosen = getattr(getattr(layer, "config", None), "_attn_implementation", None) == NAME
    return getattr(layer, "lp_q_norm", None) if is_chosen else None


def qknorm_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,  # noqa: ARG001  g takes its place
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """softmax(g · q̂k̂ᵀ) v: (batch, heads, length, head_dim) in, (batch, length, heads, head_dim) out."""
    _check(module, others)
    query, key = module.lp_q_norm(query), module.lp_k_norm(key)  # type: ignore[operator]
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    if query.shape[2] > 1:
        attended = module.lp_core(query, key, value, 1.0, attention_mask, causal, dropout)[0]  # type: ignore[operator]
    else:
        attended = attend(query, key, value, 1.0, attention_mask, causal, dropout, query.shape[1] != key.shape[1])
    return attended.transpose(1, 2).contiguous(), None


def _check(module: nn.Module, others: dict[str, Any]) -> None:
    if not hasattr(module, "lp_q_norm"):
        raise ValueError(
            f'attn_implementation="qknorm" needs a g in {type(module).__name__}: call qknorm.hf.add_lp_norms(model)'
        )
    for name in ("softcap", "s_aux", "position_bias"):
        if others.get(name) is not None:
            raise NotImplementedError(f'attn_implementation="qknorm" knows no {name}, which this model asks for')
