"""Lp normalisation: x / ‖x‖_p for any p from 1 to infinity, safe from the smallest to the largest numbers."""

from __future__ import annotations

import math
import numbers

from torch import Tensor

from qknorm.ops.lp import scaled_lp_normalize

# Below any entry that a query or key may be expected to have, and so far above float32's smallest number, 1e-38, that a
# gradient, which grows with the inverse of the norm, stays finite.
DEFAULT_EPS = 1e-32
# From here on the norm is the largest entry to within float32's rounding, and powers would lose all precision.
_AS_GOOD_AS_INFINITE = 1e6


def lp_normalize(x: Tensor, p: float = 2.0, dim: int = -1, eps: float = DEFAULT_EPS) -> Tensor:
    """Divide x by its Lp norm along `dim`, so that every vector there gets norm 1.

    The norm is taken in float32 (float64 for float64 input), with the largest entry divided out where that matters,
    so huge entries do not overflow and tiny ones do not vanish; the result has the dtype of x. A vector whose norm is
    at most `eps` becomes zero and receives a zero gradient. The gradient, (dy − s (x̂·dy)) / ‖x‖ with
    s = sign(x̂) |x̂|^(p−1), is orthogonal to x. It can be differentiated again for p ≥ 2.
    """
    if not x.is_floating_point():
        raise TypeError(f"lp_normalize needs a tensor of real floating-point numbers, not {x.dtype}")
    if x.dim() == 0:
        raise ValueError("lp_normalize needs a tensor with at least one dimension")
    if dim in (-1, x.dim() - 1):  # to move nothing takes as long as a short row
        return scaled_lp_normalize(x, None, checked_p(p), eps)
    return scaled_lp_normalize(x.movedim(dim, -1), None, checked_p(p), eps).movedim(-1, dim)


def checked_p(p: float) -> float:
    """Return p as a float, or raise a ValueError that says what it must be."""
    if isinstance(p, bool) or not isinstance(p, (int, float, numbers.Real)) or not p >= 1:
        raise ValueError(f"p must be a number from 1 to infinity (math.inf), not {p!r}")
    return math.inf if p > _AS_GOOD_AS_INFINITE else float(p)
