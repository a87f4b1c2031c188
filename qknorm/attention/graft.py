"""Query-key normalisation for a model trained without it: little of what it has learned is lost, g is fitted.

Lengths of queries and keys say something that normalising alone would forget: how sure a query is, how much a key
matters. So queries and keys are first moved by long constant vectors, beside which lengths and what they say remain as
angles: q′ = q − (q·u)u + a·v and k′ = k − (k·v)v + b·u, with u and v two directions that the head hardly uses. Then
q′·k′ is q·k but for those two, and the lengths of q′ and k′ are nearly a and b.

At strength s the move is s times as large, a query is q′ · (g/‖q′‖)^s, a key k′ / ‖k′‖^s, and the softmax scale
c^(1−s), c the old one: the old model at s = 0, softmax(g · q̂′ k̂′ᵀ) at s = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import LpNorm
from qknorm.attention.observed import Attended, Rows, arguments, evaluating, observing
from qknorm.ops.rotary import RotaryTables, rotate

_NEWTON_STEPS = 4
_SMALLEST_G = 0.01
_SMALLEST_HEAD = 8  # that has directions to spare


class Move(NamedTuple):
    """What is done to the vectors of each head before they are normalised.

    added: (heads, 1, head_dim). left_out: (heads, head_dim, dimensions), an orthonormal basis.
    """

    added: Tensor
    left_out: Tensor

    def without(self, x: Tensor) -> Tensor:
        """Return x, (batch, heads, length, head_dim), without what is left out of it."""
        basis = self.left_out.to(x.dtype)
        return x - (x @ basis) @ basis.mT

    def of(self, x: Tensor, strength: float = 1.0) -> Tensor:
        """Return moved vectors, or those on the way there."""
        return torch.lerp(x, self.without(x) + self.added.to(x.dtype), strength)

    def repeated(self, groups: int) -> Move:
        """Return the same for query heads of which several share a head of keys."""
        return Move(*(part.repeat_interleave(groups, 0) for part in self))


class GraftedNorm(LpNorm):
    """x′ · (g/‖x′‖_p)^s: the identity at strength 0, `LpNorm` of moved vectors at strength 1. Keys have no g.

    It learns ln g and the constant vector. plain_scale: the softmax scale of the old attention.
    """

    added: nn.Parameter | None
    left_out: Tensor

    def __init__(self, dim: int, p: float, g: Tensor | None, plain_scale: float, move: Move | None) -> None:
        super().__init__(
            dim, None, g is not None, p=p, num_heads=None if g is None else len(g), log_scale=True, scale_init=1.0
        )
        self.strength, self.plain_scale = 1.0, plain_scale
        if self.log_scale is not None and g is not None:
            self.log_scale = nn.Parameter(g.log())
        self.register_parameter("added", None if move is None else nn.Parameter(move.added))
        self.register_buffer("left_out", None if move is None else move.left_out)

    @property
    def move(self) -> Move | None:
        return None if self.added is None else Move(self.added, self.left_out)

    def forward(self, x: Tensor, rotary: RotaryTables | None = None) -> Tensor:
        if self.strength > 0 and self.move is not None:
            x = self.move.of(x, self.strength)
        if self.strength == 1:
            return super().forward(x, rotary)
        x = x if self.strength == 0 else (x * self._factor(x)).to(x.dtype)
        return x if rotary is None else rotate(x, rotary)

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


def graft(model: nn.Module, batches: Iterable[Any], p: float = 2.0, move: float = 2.0) -> dict[str, Tensor]:
    """Give the plain attention layers of a trained model query-key normalisation, in place; returns g of each layer.

    Each head gets the g whose softmax(g · q̂′ k̂′ᵀ) is closest to the head's old weights on these batches: it has the
    least Kullback-Leibler divergence from them. batches: the model's inputs; a mapping holds arguments by name, a
    tuple or list in order. move: how long the constant vectors are, as a multiple of the root mean square length of
    queries and keys; the longer, the closer to the old model, and the larger g, which bounds all logits. 0: none.
    Layers are `QKNormAttention(qk_norm=None)`, and those of transformers with q_proj, k_proj, head_dim and scaling,
    such as Llama's. The strength is 1 afterwards; see `strength_`, and `fold_` for the end of training. ln g and the
    constant vectors are new parameters: create the optimiser afterwards.
    """
    if move < 0:
        raise ValueError(f"move must not be negative, not {move}")
    layers = {name: layer for name, layer in model.named_modules() if _is_plain(layer)}
    if not layers:
        raise ValueError("the model has no attention layer without query-key normalisation that graft knows")
    fits = _fitted(model, layers, list(batches), p, move)
    for name, layer in layers.items():
        _install(layer, fits[name], p)
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


def finds_query_norm(finder: Callable[[nn.Module], nn.Module | None]) -> Callable[[nn.Module], nn.Module | None]:
    """Register where else than here a layer may have the norm of its queries, which then comes before all others."""
    _FINDERS.append(finder)
    return finder


def query_norm(layer: nn.Module) -> Any:
    """Return the norm of an attention layer's queries, wherever it is stored, the last if there are two, or None."""
    found = (finder(layer) for finder in _FINDERS)
    of_layer = getattr(layer, "q_norm", None) or getattr(getattr(layer, "q_proj", None), "norm", None)
    return next((norm for norm in found if norm is not None), of_layer)


_FINDERS: list[Callable[[nn.Module], nn.Module | None]] = []


@torch.no_grad()
def fold_(model: nn.Module) -> None:
    """Make a graft permanent: moves become part of the projections, and norms `LpNorm` with one g for each head.

    The model computes the same as at strength 1, without further operations. Projections gain a bias if they had none.
    """
    strength_(model, 1.0)
    for layer in list(model.modules()):
        if isinstance(query_norm(layer), GraftedNorm):
            for side in ("q", "k"):
                _fold(layer, side)


def _fold(layer: Any, side: str) -> None:
    projection = getattr(layer, f"{side}_proj")
    owner, name = (layer, f"{side}_norm") if isinstance(layer, QKNormAttention) else (projection, "norm")
    norm: GraftedNorm = getattr(owner, name)
    if (move := norm.move) is not None:
        heads = projection.weight.unflatten(0, (-1, norm.dim))  # (heads, head_dim, inputs)
        bias = torch.zeros_like(heads[..., 0]) if projection.bias is None else projection.bias.view_as(heads[..., 0])
        projection.weight.copy_(move.without(heads.mT).mT.flatten(0, 1))
        projection.bias = nn.Parameter(move.of(bias.unsqueeze(-2)).flatten())
    g = norm.g
    folded = LpNorm(
        norm.dim, norm.eps, g is not None, p=norm.p, num_heads=None if g is None else len(g), log_scale=True
    )
    if g is not None:
        folded.log_scale = norm.log_scale
    setattr(owner, name, folded)


class _Fit:
    """What the heads of a layer need: their moves, then g by Newton's method. Each pass over the batches is one step.

    The first step of g is a least-squares fit of the logits, each row about its own mean, weighted by the old weights.
    """

    def __init__(self, p: float, move: float) -> None:
        self.p, self.move, self.g = p, move, torch.empty(0)
        self.moves: tuple[Move, Move] | None = None
        self._unused = _Unused() if move else None  # until moves are chosen
        self._slope: Tensor | float = 0.0
        self._curvature: Tensor | float = 0.0

    def add(self, seen: Attended) -> None:
        if self._unused is not None:
            self._unused.add(seen)
            return
        (query, key), reduced = seen.projected, seen
        if self.moves is not None:
            of_queries, of_keys = self.moves
            query, key = of_queries.of(query), of_keys.of(key)
            reduced = seen._replace(query=of_queries.without(seen.query), key=of_keys.without(seen.key))
        queries, keys = (seen.lengths(side, self.p) for side in (query, key))
        for rows, others in zip(seen.rows(), reduced.rows(), strict=True):
            lengths = queries[:, :, rows.span, None] * keys[:, :, None]
            self._add_rows(rows, (others.logits / (seen.scale * lengths)).nan_to_num())

    def step(self) -> None:
        """Choose the moves, or move g, at most by a factor of two, and begin to count anew."""
        if self._unused is not None:
            self.moves, self._unused = self._unused.moves(self.move), None
            return
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


class _Unused:
    """Directions in which the queries and keys of a head are shortest. Query heads that share keys have them in common.

    Where positions rotate vectors, directions are taken by the planes that are rotated, which stay what they are.
    """

    def __init__(self) -> None:
        self._query: Tensor | float = 0.0  # second moments: (heads of keys, head_dim, head_dim)
        self._key: Tensor | float = 0.0
        self._calls = 0
        self._planes: Tensor | None = None
        self._groups = 1

    def add(self, seen: Attended) -> None:
        query, key = seen.projected
        self._groups = query.shape[1] // key.shape[1]
        if not torch.equal(query, seen.query):
            self._planes = _rotated_planes(query, seen.query)
        self._query += _moments(query.unflatten(1, (-1, self._groups)).flatten(2, 3))
        self._key += _moments(key)
        self._calls += 1

    def moves(self, factor: float) -> tuple[Move, Move]:
        """Return those of queries and keys, whose constant vectors are this many times as long as they are."""
        moments = torch.stack([torch.as_tensor(self._query), torch.as_tensor(self._key)]) / self._calls
        squares = moments.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]  # of lengths: (2, heads of keys, 1, 1)
        u, v = self._shortest((moments / squares.clamp_min(torch.finfo(torch.float32).tiny)).sum(0))
        query, key = (
            Move((length * added[..., :1].mT).float(), left_out.float())
            for length, added, left_out in zip(factor * squares.sqrt(), (v, u), (u, v), strict=True)
        )
        return query.repeated(self._groups), key

    def _shortest(self, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Two bases (heads, head_dim, dimensions) that have nothing in common."""
        if self._planes is None:
            directions = torch.linalg.eigh(shares).eigenvectors
            return directions[..., 0:1], directions[..., 1:2]
        of_planes = shares.diagonal(dim1=1, dim2=2)[:, self._planes].sum(-1)  # (heads, planes)
        first, second = of_planes.topk(2, largest=False).indices.unbind(-1)
        axes = torch.eye(shares.shape[-1], dtype=shares.dtype, device=shares.device)
        return axes[self._planes[first]].mT, axes[self._planes[second]].mT


def _moments(vectors: Tensor) -> Tensor:
    """(heads, head_dim, head_dim): the mean over all vectors of each with itself."""
    wide = vectors.double()
    return torch.einsum("bhld,bhle->hde", wide, wide) / (wide.shape[0] * wide.shape[2])


def _rotated_planes(before: Tensor, after: Tensor) -> Tensor:
    """(planes, 2): which entries are rotated together, by looking at whose length stays.

    Either neighbours, or the first half of some of the entries with their second half.
    """
    dim = before.shape[-1]
    neighbours = torch.arange(dim).view(-1, 2)
    halves = [
        torch.cat([torch.stack([torch.arange(size // 2), torch.arange(size // 2, size)], 1), neighbours[size // 2 :]])
        for size in range(dim, 1, -2)
    ]

    def change(planes: Tensor) -> float:
        lengths = [side.float()[..., planes].norm(dim=-1) for side in (before, after)]
        return float((lengths[0] - lengths[1]).abs().max())

    return min([*halves, neighbours], key=change).to(before.device)


def _covariance(weights: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(heads,): the sum over all rows of the covariance of a and b under a row's weights."""
    a_mean, b_mean = ((weights * side).sum(-1, keepdim=True) for side in (a, b))
    return (weights * (a - a_mean) * (b - b_mean)).sum((0, 2, 3))


def _fitted(model: nn.Module, layers: dict[str, Any], batches: list[Any], p: float, move: float) -> dict[str, _Fit]:
    fits = {name: _Fit(p, move if layer.head_dim >= _SMALLEST_HEAD else 0.0) for name, layer in layers.items()}
    reached: set[str] = set()

    def fit(name: str, _layer: nn.Module, seen: Attended) -> None:
        if name in fits:
            reached.add(name)
            fits[name].add(seen)

    for _ in range(2 + _NEWTON_STEPS):
        with evaluating(model), observing(model, fit):
            for batch in batches:
                positional, named = arguments(batch)
                model(*positional, **named)
        if missed := sorted(fits.keys() - reached):
            raise ValueError(f"the batches do not reach {', '.join(missed)}, whose g cannot be fitted therefore")
        for layer_fit in fits.values():
            layer_fit.step()
    return fits


def _is_plain(layer: nn.Module) -> bool:
    if isinstance(layer, QKNormAttention):
        return isinstance(layer.q_norm, nn.Identity)
    projections = (getattr(layer, name, None) for name in ("q_proj", "k_proj"))
    has_projections = all(type(projection) is nn.Linear for projection in projections)
    return has_projections and hasattr(layer, "head_dim") and hasattr(layer, "scaling") and query_norm(layer) is None


def _install(layer: Any, fit: _Fit, p: float) -> None:
    weight, plain_scale = layer.q_proj.weight, getattr(layer, _scale_name(layer))
    query, key = (
        GraftedNorm(layer.head_dim, p, g, plain_scale, move).to(weight.device, weight.dtype)
        for g, move in zip((fit.g, None), fit.moves or (None, None), strict=True)
    )
    if isinstance(layer, QKNormAttention):
        layer.q_norm, layer.k_norm, layer.qk_norm = query, key, "lp"
    else:
        layer.q_proj, layer.k_proj = GraftedLinear(layer.q_proj, query), GraftedLinear(layer.k_proj, key)


def _scale_name(layer: nn.Module) -> str:
    """The attribute in which a layer keeps its softmax scale."""
    return "softmax_scale" if isinstance(layer, QKNormAttention) else "scaling"
