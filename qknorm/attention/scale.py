"""Where the learnable factor g starts.

Normalised queries and keys meet in a bounded product, so the softmax needs a factor to become sharp. Training
finds it; these functions give it a sensible start.
"""

from __future__ import annotations

import functools
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
    """Return the start of g that makes attention under p as sharp as `scale_at_2` does under p = 2.

    For Gaussian queries and keys the spread of q̂·k̂ grows with p: at head_dim 64 it is three times as large at p = 3
    as at p = 2. g_p = g₂ / E[‖z‖₂²/‖z‖_p²], z standard Gaussian, removes that for every p and head_dim.
    """
    return scale_at_2 / _mean_square(checked_p(p), head_dim)


def unit_variance_scale(p: float, dim: int) -> float:
    """Return the factor that gives x/‖x‖_p the variance of Gaussian x: √dim for p = 2, as in RMSNorm."""
    return math.sqrt(dim / _mean_square(checked_p(p), dim))


def percentile_length(lengths: Iterable[float], percentile: float = 97.5) -> float:
    """Return this percentile of the lengths, interpolated between the nearest two as NumPy does by default."""
    ordered = sorted(lengths)
    if not ordered:
        raise ValueError("percentile_length needs at least one length")
    if not 0 <= percentile <= 100:
        raise ValueError(f"percentile must lie between 0 and 100, not {percentile!r}")
    position = (len(ordered) - 1) * percentile / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (position - below))


@functools.cache
def _mean_square(p: float, dim: int) -> float:
    """E[‖z‖₂²/‖z‖_p²], what is left of the squared length of Gaussian vectors after their Lp norm is divided out.

    Since S^(−2/p) is the integral of t^(2/p−1) exp(−tS)/Γ(2/p) and the entries are independent, it is with t = r^(−p)

        2d/Γ(1 + 2/p) ∫ r⁻³ E[z² exp(−(|z|/r)^p)] (E[exp(−(|z|/r)^p)])^(d−1) dr

    by the trapezoidal rule over ln r. It converges fast, and for p = ∞ exp(−(|z|/r)^p) says whether |z| < r.
    """
    if dim < 1:
        raise ValueError(f"head_dim must be at least 1, not {dim!r}")
    if p == 2:
        return 1.0
    total = sum(_density(math.exp(_STEP * i), p, dim) for i in range(round(-20 / _STEP), round(25 / _STEP)))
    return 2 * dim / math.gamma(1 + 2 / p) * _STEP * total


def _density(r: float, p: float, dim: int) -> float:
    below, squares = _moments_below(r, p)
    return squares * below ** (dim - 1) / r**2


def _moments_below(r: float, p: float) -> tuple[float, float]:
    """E[1] and E[z²] where |z| < r W, with W as likely to be above w as exp(−w^p) says: W = 1 for p = ∞."""
    if math.isinf(p):
        return _gaussian_below(r)
    moments = [(weight, *_gaussian_below(r * base ** (1 / p))) for base, weight in _EXPONENTIAL]
    return sum(weight * mass for weight, mass, _ in moments), sum(weight * square for weight, _, square in moments)


def _gaussian_below(limit: float) -> tuple[float, float]:
    """E[1] and E[z²] of a standard Gaussian where |z| < limit."""
    mass = math.erf(limit / math.sqrt(2))
    return mass, mass - limit * math.sqrt(2 / math.pi) * math.exp(-(limit**2) / 2)


_STEP = 0.1  # of ln r
# An exponentially distributed number: places and weights of the trapezoidal rule over its logarithm.
_EXPONENTIAL = [(math.exp(i / 2), math.exp(i / 2 - math.exp(i / 2)) / 2) for i in range(-50, 9)]
