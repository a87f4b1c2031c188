"""Query-key normalisation for a model trained without it: g fitted to its logits, and a gradual transition.

At strength s a query is q · (g/‖q‖)^s, a key k / ‖k‖^s, and the softmax scale c^(1−s), c the old one: the old model at
s = 0, softmax(g · q̂ k̂ᵀ) at s = 1, and in between logits whose size is the geometric mean of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import HeadIdentity, LpNorm
from qknorm.attention.observed import PROJECTIONS, Attended, Rows, arguments, evaluating, observing
from qknorm.attention.rotary import RotaryTables, rotate

_NEWTON_STEPS = 4
_SMALLEST_G = 0.01


class GraftedNorm(LpNorm):
    """x · (g/‖x‖_p)^s: the identity at strength 0, `LpNorm` at strength 1. It learns ln g; keys have none.

    plain_scale: the softmax scale of the old attention.
    """

    def __init__(self, dim: int, p: float, g: Tensor | None, plain_scale: float) -> None:
        super().__init__(
            dim, None, g is not None, p=p, num_heads=None if g is None else len(g), log_scale=True, scale_init=1.0
        )
        self.strength, self.plain_scale = 1.0, plain_scale
        if self.log_scale is not None and g is not None:
            self.log_scale = nn.Parameter(g.log())

    def forward(self, x: Tensor, rotary: RotaryTables | None = None) -> Tensor:
        if self.strength == 1:
            return super().forward(x, rotary)
        x = x if self.strength == 0 else (x * self._factor(x)).to(x.dtype)
        return x if rotary is None else rotate(x, *rotary)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, strength={self.strength:g}"

    def _factor(self, x: Tensor) -> Tensor:
        """(g/‖x‖_p)^s = exp(s · (ln g − ln ‖x‖_p))."""
        wide = torch.promote_types(x.dtype, torch.float32)
        log_length = torch.linalg.vector_norm(x, self.p, -1, keepdim=True, dtype=wide).clamp_min(self.eps).log()
        log_g = 0.0 if self.log_scale is None else self.log_scale.view(-1, 1, 1)
        factor: Tensor = (self.strength * (log_g - log_length)).exp()
        return factor


class GraftedLinear(nn.Linear):
    """A projection that normalises its heads, for attention layers without a place for norms. Its weights stay."""

    def __init__(self, projection: nn.Linear, norm: GraftedNorm) -> None:
        super().__init__(projection.in_features, projection.out_features, projection.bias is not None, device="meta")
        self.weight, self.bias = projection.weight, projection.bias
        self.norm = norm

    def forward(self, input: Tensor) -> Tensor:
        heads = super().forward(input).unflatten(-1, (-1, self.norm.dim)).transpose(-3, -2)
        normalized: Tensor = self.norm(heads)
        return normalized.transpose(-3, -2).flatten(-2)


def graft(model: nn.Module, batches: Iterable[Any], p: float = 2.0) -> dict[str, Tensor]:
    """Give the plain attention layers of a trained model query-key normalisation, in place; returns g of each layer.

    Each head gets the g whose softmax(g · q̂ k̂ᵀ) is closest to the head's old weights on these batches: it has the
    least Kullback-Leibler divergence from them. batches: the model's inputs; a mapping holds arguments by name, a
    tuple or list in order. Layers are `QKNormAttention(qk_norm=None)`, and those of transformers with
    q_proj, k_proj, head_dim and scaling, such as Llama's. The strength is 1 afterwards; see `strength_`.
    g is a new parameter (ln g, to be exact): create the optimiser afterwards.
    """
    layers = {name: layer for name, layer in model.named_modules() if _is_plain(layer)}
    if not layers:
        raise ValueError("the model has no attention layer without query-key normalisation that graft knows")
    fits = _fitted(model, layers, list(batches), p)
    for name, layer in layers.items():
        _install(layer, fits[name].g, p)
    strength_(model, 1.0)
    return {name: fit.g for name, fit in fits.items()}


def strength_(model: nn.Module, strength: float) -> None:
    """Set how far a grafted model is normalised: 0 is the old model, bit for bit, 1 is query-key normalisation."""
    if not 0 <= strength <= 1:
        raise ValueError(f"strength must be from 0 to 1, not {strength}")
    norms = [module for module in model.modules() if isinstance(module, GraftedNorm)]
    if not norms:
        raise ValueError("the model has no grafted attention; call graft(model, batches) first")
    for norm in norms:
        norm.strength = strength
    for layer in model.modules():
        if isinstance(norm := query_norm(layer), GraftedNorm):
            setattr(layer, _scale_name(layer), norm.plain_scale ** (1 - strength))


def query_norm(layer: nn.Module) -> Any:
    """Return the norm of an attention layer's queries, wherever it is stored, the last if there are two, or None."""
    uses_interface_norms = getattr(getattr(layer, "config", None), "_attn_implementation", None) == "qknorm"
    of_interface = getattr(layer, "lp_q_norm", None) if uses_interface_norms else None
    of_layer = getattr(layer, "q_norm", None)
    return of_interface or of_layer or getattr(getattr(layer, "q_proj", None), "norm", None)


class _Fit:
    """g of each head of a layer, by Newton's method: every pass over the batches is one step.

    The first pass is a least-squares fit of the logits, each row about its own mean, both weighted by the old weights.
    """

    def __init__(self, p: float) -> None:
        self.p, self.g = p, torch.empty(0)
        self._slope: Tensor | float = 0.0
        self._curvature: Tensor | float = 0.0

    def add(self, seen: Attended) -> None:
        queries, keys = (seen.lengths(side, self.p) for side in seen.projected)
        for rows in seen.rows():
            lengths = queries[:, :, rows.span, None] * keys[:, :, None]
            self._add_rows(rows, (rows.logits / (seen.scale * lengths)).nan_to_num())

    def step(self) -> None:
        """Move g, at most by a factor of two, and begin to count anew."""
        moved = self._slope / torch.as_tensor(self._curvature).clamp_min(torch.finfo(torch.float32).tiny)
        first = not self.g.numel()
        self.g = moved.clamp_min(_SMALLEST_G) if first else (self.g + moved).clamp(self.g / 2, self.g * 2)
        self._slope = self._curvature = 0.0

    def _add_rows(self, rows: Rows, similarity: Tensor) -> None:
        old = rows.weights()
        if not self.g.numel():
            self._slope += _covariance(old, rows.logits, similarity)
            self._curvature += _covariance(old, similarity, similarity)
        else:
            new = rows.weights(similarity * self.g.view(-1, 1, 1))
            self._slope += ((old - new) * similarity).sum((0, 2, 3))
            self._curvature += _covariance(new, similarity, similarity)


def _covariance(weights: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(heads,): the sum over all rows of the covariance of a and b under a row's weights."""
    a_mean, b_mean = ((weights * side).sum(-1, keepdim=True) for side in (a, b))
    return (weights * (a - a_mean) * (b - b_mean)).sum((0, 2, 3))


def _fitted(model: nn.Module, layers: dict[str, nn.Module], batches: list[Any], p: float) -> dict[str, _Fit]:
    fits = {name: _Fit(p) for name in layers}
    reached: set[str] = set()

    def fit(name: str, _layer: nn.Module, seen: Attended) -> None:
        if name in fits:
            reached.add(name)
            fits[name].add(seen)

    for _ in range(1 + _NEWTON_STEPS):
        with evaluating(model), observing(model, fit):
            for batch in batches:
                positional, named = arguments(batch)
                model(*positional, **named)
        if missed := sorted(fits.keys() - reached):
            raise ValueError(f"the batches do not reach {', '.join(missed)}, whose g cannot be fitted therefore")
        for own in fits.values():
            own.step()
    return fits


def _is_plain(layer: nn.Module) -> bool:
    if isinstance(layer, QKNormAttention):
        return isinstance(layer.q_norm, HeadIdentity)
    projections = (getattr(layer, name, None) for name in PROJECTIONS)
    has_projections = all(type(projection) is nn.Linear for projection in projections)
    return has_projections and hasattr(layer, "head_dim") and hasattr(layer, "scaling") and query_norm(layer) is None


def _install(layer: Any, g: Tensor, p: float) -> None:
    weight, plain_scale = layer.q_proj.weight, getattr(layer, _scale_name(layer))
    query, key = (GraftedNorm(layer.head_dim, p, own, plain_scale) for own in (g.to(weight.device, weight.dtype), None))
    if isinstance(layer, QKNormAttention):
        layer.q_norm, layer.k_norm, layer.qk_norm = query, key, "lp"
    else:
        layer.q_proj, layer.k_proj = GraftedLinear(layer.q_proj, query), GraftedLinear(layer.k_proj, key)


def _scale_name(layer: nn.Module) -> str:
    """The attribute in which a layer keeps its softmax scale."""
    return "softmax_scale" if isinstance(layer, QKNormAttention) else "scaling"
