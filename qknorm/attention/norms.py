"""Kinds of query-key normalisation. Each is one dataclass that knows its norms, its softmax scale and its options.

A new kind is a class and its line in `KINDS`; `QKNormAttention` also takes an instance of one from elsewhere.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from qknorm.attention.lp import DEFAULT_EPS, checked_p
from qknorm.attention.scale import comparable_scale, unit_variance_scale
from qknorm.ops import has_values
from qknorm.ops.lp import scaled_lp_normalize
from qknorm.ops.rotary import RotaryTables, rotate

_P_TOLERANCE = 0.01  # of a checkpoint that somebody rounded to half precision


class LpNorm(nn.Module):
    """g · x / ‖x‖_p over the last dimension, with the arguments of torch's RMSNorm and one learnable g as its weight.

    g starts at `scale_init`; by default x of unit variance keeps it, so p = 2 starts as RMSNorm does.
    elementwise_affine: whether there is a g. num_heads: one g for each head of (..., heads, length, dim); without it
    `scale` has shape (1,). log_scale: learn ln g instead: g stays positive, and Adam moves it in proportion to itself.
    A checkpoint remembers p, and may hold g or ln g.
    """

    scale: nn.Parameter | None
    log_scale: nn.Parameter | None
    rotates = True  # in the same pass over memory

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        p: float = 2.0,
        scale_init: float | None = None,
        num_heads: int | None = None,
        log_scale: bool = False,
    ) -> None:
        super().__init__()
        self.dim = _one_dimension(normalized_shape)
        self.p, self.eps = checked_p(p), DEFAULT_EPS if eps is None else eps
        self.scale_init = unit_variance_scale(p, self.dim) if scale_init is None else _checked_start(scale_init)
        if log_scale and self.scale_init <= 0:
            raise ValueError(f"scale_init must be positive where ln g is learned, not {scale_init!r}")
        scale = nn.Parameter(torch.empty(num_heads or 1, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("scale", None if log_scale else scale)
        self.register_parameter("log_scale", scale if log_scale else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset g to its start."""
        if self.scale is not None:
            nn.init.constant_(self.scale, self.scale_init)
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(self.scale_init))

    @property
    def g(self) -> Tensor | None:
        """The factor, whether g or ln g is learned: (1,) or (heads,)."""
        return self.scale if self.log_scale is None else self.log_scale.exp()

    def forward(self, x: Tensor, rotary: RotaryTables | None = None) -> Tensor:
        if x.shape[-1:] != (self.dim,):
            raise ValueError(f"LpNorm({self.dim}) needs (..., {self.dim}), not {tuple(x.shape)}")
        return scaled_lp_normalize(x, self.g, self.p, self.eps, rotary)

    def extra_repr(self) -> str:
        g = self.scale if self.log_scale is None else self.log_scale
        learned = "" if g is None else f", {'scale' if self.log_scale is None else 'log_scale'}={tuple(g.shape)}"
        return f"{self.dim}, p={self.p:g}{learned}"

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.scale is not None or self.log_scale is not None:
            destination[prefix + _EXTRA] = torch.tensor([self.p], dtype=torch.float32, device="cpu")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        name, errors = prefix.removesuffix(".") or "LpNorm", others[-1]
        errors.extend(f"{name} {difference}" for difference in self._convert(state_dict, prefix))
        stored = state_dict.pop(prefix + _EXTRA, self.p)
        p = self.p if isinstance(stored, Tensor) and not has_values(stored) else float(stored)
        if not math.isclose(p, self.p, rel_tol=_P_TOLERANCE):
            errors.append(f"{name} normalises with p = {self.p:g}, but the checkpoint was trained with p = {p:g}.")
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _convert(self, state_dict: dict[str, Any], prefix: str) -> Iterator[str]:
        """From one way of keeping g to the other, and from the shape () of earlier versions to (1,).

        What cannot be converted is an error, and the parameter stays as it is.
        """
        one_dimensional(state_dict, prefix + "scale")
        if self.log_scale is not None and prefix + "scale" in state_dict:
            scale = state_dict.pop(prefix + "scale")
            impossible = _without_logarithm(scale)
            state_dict[prefix + "log_scale"] = self.log_scale.detach() if impossible else scale.log()
            for g in impossible[:1]:
                yield f"learns ln g, but the checkpoint holds g = {g:g}, which has no logarithm: use log_scale=False."
        if self.scale is not None and prefix + "log_scale" in state_dict:
            state_dict[prefix + "scale"] = state_dict.pop(prefix + "log_scale").exp()


_EXTRA = "_extra_state"  # torch's own name for what a state dict holds beside parameters and buffers


def one_dimensional(state_dict: dict[str, Any], key: str) -> None:
    """Turn a tensor of shape (), as g was before FSDP needed a dimension, into one of shape (1,)."""
    if key in state_dict and state_dict[key].dim() == 0:
        state_dict[key] = state_dict[key].reshape(1)


def _without_logarithm(scale: Tensor) -> list[float]:
    """All that are not positive, where they can be read; of a `DTensor`, among those that this process has."""
    local: Tensor = scale.to_local() if hasattr(scale, "to_local") else scale
    return [g for g in local.tolist() if not g > 0] if has_values(local) else []


def normalized(norm: nn.Module, x: Tensor, rotary: RotaryTables | None = None) -> Tensor:
    """What a norm makes of heads, then rotated, in the dtype of x, which autocast would widen."""
    if rotary is not None and getattr(norm, "rotates", False):
        y: Tensor = norm(x, rotary)
        return y
    y = norm(x).to(x.dtype)
    return y if rotary is None else rotate(y, rotary)


class Heads(NamedTuple):
    """The heads that norms are made for, and where their parameters go."""

    number: int
    dim: int
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None


class Norms(NamedTuple):
    """What a kind gives an attention layer: modules for (batch, heads, length, head_dim), and a factor of the logits.

    Rotary positions come after the norms of queries and keys; one that applies them itself, as a second argument, says
    so by `rotates = True`.
    """

    query: nn.Module
    key: nn.Module
    value: nn.Module
    softmax_scale: float


class QKNormKind(Protocol):
    """A kind of query-key normalisation, with its options."""

    def make(self, heads: Heads) -> Norms: ...


QKNorm: TypeAlias = str | Mapping[str, Any] | QKNormKind
"""The name of a kind in `KINDS`, a mapping with that name under "kind" and its options beside it, or a kind."""


@dataclass(frozen=True)
class LpKind:
    """softmax(g · q̂ k̂ᵀ): queries and keys are divided by their Lp norm, and g is learned for the layer or each head.

    scale_init: where g starts; by default as sharp as plain attention over queries and keys of unit variance.
    normalize_value: normalise values too, learn_scale: whether g is learned at all; ablations of Henry et al. 2020.
    """

    p: float = 2.0
    eps: float | None = None
    scale_init: float | None = None
    per_head_scale: bool = False
    log_scale: bool = False
    normalize_value: bool = False
    learn_scale: bool = True

    def __post_init__(self) -> None:
        checked_p(self.p)
        _check_eps(self.eps)

    def make(self, heads: Heads) -> Norms:
        start = (
            comparable_scale(self.p, heads.dim, math.sqrt(heads.dim)) if self.scale_init is None else self.scale_init
        )
        query = LpNorm(
            heads.dim,
            self.eps,
            device=heads.device,
            dtype=heads.dtype,
            p=self.p,
            scale_init=start,
            num_heads=heads.number if self.per_head_scale else None,
            log_scale=self.log_scale,
        ).requires_grad_(self.learn_scale)
        key = LpNorm(heads.dim, self.eps, elementwise_affine=False, p=self.p)
        value = LpNorm(heads.dim, self.eps, elementwise_affine=False, p=self.p) if self.normalize_value else None
        return Norms(query, key, value or nn.Identity(), 1.0)


@dataclass(frozen=True)
class RMSKind:
    """torch's RMSNorm with a weight per dimension before the usual 1/√head_dim, as Qwen3 has it with an eps of 1e-6."""

    eps: float | None = torch.finfo(torch.float32).eps

    def __post_init__(self) -> None:
        _check_eps(self.eps)

    def make(self, heads: Heads) -> Norms:
        query, key = (nn.RMSNorm(heads.dim, self.eps, device=heads.device, dtype=heads.dtype) for _ in range(2))
        return Norms(query, key, nn.Identity(), heads.dim**-0.5)


@dataclass(frozen=True)
class LayerKind:
    """torch's LayerNorm with weights and biases before the usual 1/√head_dim."""

    eps: float = 1e-5

    def __post_init__(self) -> None:
        _check_eps(self.eps)

    def make(self, heads: Heads) -> Norms:
        query, key = (nn.LayerNorm(heads.dim, self.eps, device=heads.device, dtype=heads.dtype) for _ in range(2))
        return Norms(query, key, nn.Identity(), heads.dim**-0.5)


@dataclass(frozen=True)
class PlainKind:
    """Scaled dot-product attention without a norm."""

    def make(self, heads: Heads) -> Norms:
        return Norms(nn.Identity(), nn.Identity(), nn.Identity(), heads.dim**-0.5)


KINDS: dict[str, type[Any]] = {"lp": LpKind, "rms": RMSKind, "layer": LayerKind, "none": PlainKind}


def kind_of(qk_norm: QKNorm | None, options: Mapping[str, Any] | None = None) -> QKNormKind:
    """Return the kind that is meant; `options` go with its name alone, and those at their defaults are not given."""
    given = {name: value for name, value in (options or {}).items() if value != getattr(LpKind, name)}
    if qk_norm is None or isinstance(qk_norm, str):
        return _named(qk_norm, given)
    if given:
        raise ValueError(f"{' and '.join(given)} must be set on the kind that is given as qk_norm")
    if not isinstance(qk_norm, Mapping):
        return qk_norm
    if "kind" not in qk_norm:
        raise ValueError(f'qk_norm with options needs their "kind", one of {_names()}, not {dict(qk_norm)}')
    return _named(qk_norm["kind"], {name: value for name, value in qk_norm.items() if name != "kind"})


def _named(qk_norm: str | None, options: Mapping[str, Any]) -> QKNormKind:
    name = "none" if qk_norm is None else qk_norm
    if name not in KINDS:
        raise ValueError(f"qk_norm must be {_names()} or None, not {qk_norm!r}")
    foreign = sorted(options.keys() - _options(name))
    if foreign:
        owners = " or ".join(f'qk_norm="{known}"' for known in KINDS if _options(known).issuperset(foreign))
        belong = (
            f"such options belong to {owners}" if owners else f"it has {', '.join(sorted(_options(name))) or 'none'}"
        )
        raise ValueError(f"{' and '.join(foreign)} cannot be set for qk_norm={qk_norm!r}: {belong}")
    kind: QKNormKind = KINDS[name](**options)
    return kind


def _names() -> str:
    return ", ".join(f'"{known}"' for known in KINDS if known != "none")


def _options(name: str) -> set[str]:
    return set(inspect.signature(KINDS[name]).parameters)


def _one_dimension(normalized_shape: int | Sequence[int]) -> int:
    if isinstance(normalized_shape, (int, numbers.Integral)):  # as for RMSNorm, NumPy's too
        return int(normalized_shape)
    shape = tuple(normalized_shape)
    if len(shape) != 1:
        raise ValueError(f"LpNorm normalises over one dimension, so normalized_shape must be one number, not {shape}")
    return shape[0]


def _check_eps(eps: float | None) -> None:
    if eps is not None and not 0 <= eps < math.inf:
        raise ValueError(f"eps must be a finite number from 0 on, not {eps!r}")


def _checked_start(scale_init: float) -> float:
    if not math.isfinite(scale_init):
        raise ValueError(f"scale_init must be a finite number, not {scale_init!r}")
    return float(scale_init)
