"""Where the learnable factor g starts.

Normalised queries and keys meet in a bounded product, so the softmax needs a factor to become decisive. Training
finds it; these functions give it a sensible start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from qknorm.attention.lp import checked_p


def henry_scale(length: float) -> float:
    """g₀ = log₂(L² − L), equation 3 of Henry et al. 2020; L is a typical sequence length of the data.

    Take L from `percentile_length`: it is the 97.5th percentile of the lengths in tokens, source and target together.
    """
    if not length >= 2:
        raise ValueError(f"henry_scale needs a length of at least 2, not {length!r}: log2(L² − L) is no start for g")
    return math.log2(length**2 - length)


def comparable_scale(p: float, head_dim: int, scale_at_2: float) -> float:
    """The start of g that makes attention under p as hot as `scale_at_2` makes it under p = 2.

    For Gaussian queries and keys the spread of q̂·k̂ grows with p: at head_dim 64 it is three times as large at p = 3
    as at p = 2. α_p = α₂ · d^(2/p−1) · m_p^(2/p), with m_p = E|z|^p, takes that away. It rests on ‖z‖_p being near
    (d · m_p)^(1/p), which holds while p is small against log d; for p = ∞ the expected maximum stands in.
    """
    p = checked_p(p)
    if head_dim < 1:
        raise ValueError(f"head_dim must be at least 1, not {head_dim!r}")
    squared_norm = _expected_maximum(head_dim) ** 2 if math.isinf(p) else (head_dim * _absolute_moment(p)) ** (2 / p)
    return scale_at_2 * squared_norm / head_dim


def percentile_length(lengths: Iterable[float], percentile: float = 97.5) -> float:
    """The given percentile of some lengths, interpolated between the two nearest as NumPy does by default."""
    ordered = sorted(lengths)
    if not ordered:
        raise ValueError("percentile_length needs at least one length")
    if not 0 <= percentile <= 100:
        raise ValueError(f"percentile must lie between 0 and 100, not {percentile!r}")
    position = (len(ordered) - 1) * percentile / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


def _absolute_moment(p: float) -> float:
    """m_p = E|z|^p of a standard Gaussian z."""
    return math.exp(p / 2 * math.log(2) + math.lgamma((p + 1) / 2)) / math.sqrt(math.pi)


def _expected_maximum(count: int) -> float:
    """E max|z| of `count` independent standard Gaussians: ∫₀^∞ 1 − erf(t/√2)^count dt, by the midpoint rule."""
    step, end = 1e-3, 12.0
    return step * sum(1 - math.erf((i + 0.5) * step / math.sqrt(2)) ** count for i in range(int(end / step)))
