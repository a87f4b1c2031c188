"""Weights of an attention module, from the conventions of transformers to those of `QKNormAttention` and back.

Both are state dicts of one module. Each step of the way there has its reverse beside it. All of them move numbers, and
none changes one: the way back returns every digit in every dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from qknorm.hf.spec import QKNormSpec

Weights: TypeAlias = dict[str, Tensor]

_FUSED = "query_key_value"
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def ours_from_theirs(theirs: Mapping[str, Tensor], spec: QKNormSpec) -> Weights:
    """The state dict of a `QKNormAttention` from that of a module of transformers."""
    names = {"o_proj": "out_proj", "dense": "out_proj", spec.q_norm: "q_norm", spec.k_norm: "k_norm"}
    return _stacked(_renamed(_split(theirs, spec), names))


def theirs_from_ours(ours: Mapping[str, Tensor], spec: QKNormSpec, keys: Iterable[str]) -> Weights:
    """The other way round, for a module whose state dict has these keys."""
    expected = set(keys)
    output = "o_proj" if "o_proj.weight" in expected else "dense"
    names = {"out_proj": output, "q_norm": spec.q_norm, "k_norm": spec.k_norm}
    theirs = _renamed(ours, names)
    if f"{_FUSED}.weight" in expected:
        theirs = _fused(theirs, spec)
    return theirs if expected == theirs.keys() else _unstacked(theirs, expected)


def _renamed(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> Weights:
    """By the first part of each name."""
    parts = ((*name.partition("."), tensor) for name, tensor in weights.items())
    return {names.get(first, first) + dot + rest: tensor for first, dot, rest, tensor in parts}


def _split(theirs: Mapping[str, Tensor], spec: QKNormSpec) -> Weights:
    """Persimmon's one projection, in which the query, key and value of each head follow each other, as three."""
    split: Weights = {}
    for name, tensor in theirs.items():
        module, _, kind = name.partition(".")
        if module == _FUSED:
            parts = tensor.unflatten(0, (spec.num_heads, 3, spec.head_dim)).unbind(1)
            split |= {f"{part}.{kind}": rows.flatten(0, 1) for part, rows in zip(_PROJECTIONS, parts, strict=True)}
        else:
            split[name] = tensor
    return split


def _fused(weights: Mapping[str, Tensor], spec: QKNormSpec) -> Weights:
    fused = {name: tensor for name, tensor in weights.items() if name.partition(".")[0] not in _PROJECTIONS}
    for kind in ("weight", "bias"):
        parts = [weights[f"{part}.{kind}"].unflatten(0, (spec.num_heads, spec.head_dim)) for part in _PROJECTIONS]
        fused[f"{_FUSED}.{kind}"] = torch.stack(parts, 1).flatten(0, 2)
    return fused


def _stacked(weights: Mapping[str, Tensor]) -> Weights:
    """StableLM's norm of each head, `q_norm.norms.0.weight` and so on, as one weight (heads, head_dim)."""
    stacked: Weights = {}
    for name, tensor in weights.items():
        module, is_listed, rest = name.partition(".norms.")
        if not is_listed:
            stacked[name] = tensor
        elif rest.startswith("0."):
            kind = rest.removeprefix("0.")
            heads = sum(other.startswith(f"{module}.norms.") and other.endswith(f".{kind}") for other in weights)
            stacked[f"{module}.{kind}"] = torch.stack(
                [weights[f"{module}.norms.{head}.{kind}"] for head in range(heads)]
            )
    return stacked


def _unstacked(weights: Mapping[str, Tensor], names: Iterable[str]) -> Weights:
    unstacked: Weights = {}
    for name in names:
        module, is_listed, rest = name.partition(".norms.")
        head, _, kind = rest.partition(".")
        unstacked[name] = weights[f"{module}.{kind}"][int(head)] if is_listed else weights[name]
    return unstacked
