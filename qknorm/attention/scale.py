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
        raise ValueError(f"henry_scale needs a length of at least 2, not {length!r}: log2(L² − L) is not a start for g")
    return math.log2(length**2 - length)


def comparable_scale(p: float, head_dim: int, scale_at_2: float) -> float:
    """The start of g that makes attention under p as sharp as `scale_at_2` makes it under p = 2.

    For Gaussian queries and keys the spread of q̂·k̂ grows with p: at head_dim 64 it is three times as large at p = 3
    as at p = 2. α_p = α₂ · d^(2/p−1) · m_p^(2/p), with m_p = E|z|^p, takes that away. It rests on ‖z‖_p being near
    (d · m_p)^(1/p), a bound that is close while p is small against log d. Beyond p = 4 the smallest such bound up to p
    is taken, since a norm falls with p; for p = ∞ the expected maximum.
    """
    p = checked_p(p)
    if head_dim < 1:
        raise ValueError(f"head_dim must be at least 1, not {head_dim!r}")
    return scale_at_2 * _typical_norm(p, head_dim) ** 2 / head_dim


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


def _typical_norm(p: float, dim: int) -> float:
    """About ‖z‖_p of a vector of standard Gaussians."""
    if math.isinf(p):
        return _expected_maximum(dim)
    exponents = [p] if p <= 4 else [4 + step / 4 for step in range(int(4 * min(p - 4, 60)) + 1)]
    return min(_norm_bound(exponent, dim) for exponent in exponents)


def _norm_bound(p: float, dim: int) -> float:
    """(d · m_p)^(1/p), with m_p = E|z|^p = 2^(p/2) Γ((p+1)/2) / √π, by logarithms since m_p is soon too large."""
    log_moment = p / 2 * math.log(2) + math.lgamma((p + 1) / 2) - math.log(math.pi) / 2
    return math.exp((math.log(dim) + log_moment) / p)


def _expected_maximum(count: int) -> float:
    """E max|z| of `count` independent standard Gaussians: ∫₀^∞ 1 − erf(t/√2)^count dt, by the midpoint rule."""
    step, end = 1e-3, 12.0
    return step * sum(1 - math.erf((i + 0.5) * step / math.sqrt(2)) ** count for i in range(int(end / step)))
