"""The papers' formulas in plain float64, written for reading and differentiated by autograd."""

from __future__ import annotations

import math

import torch
from torch import Tensor

P_VALUES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 7.3, math.inf)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def p_name(p: object) -> str | None:
    return f"p={p}" if isinstance(p, float) else None


def normalize(x: Tensor, p: float) -> Tensor:
    x = x.double()
    if math.isinf(p):
        norm = x.abs().max(dim=-1, keepdim=True).values
    else:
        norm = (x.abs() ** p).sum(-1, keepdim=True) ** (1 / p)
    return x / norm


def weights(q: Tensor, k: Tensor, g: Tensor, p: float, mask: Tensor | None = None) -> Tensor:
    """q: (batch, heads, queries, d); k: (batch, kv_heads, keys, d); g: () or (heads,); mask: True = may attend."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    g = g.double().reshape(-1, 1, 1)
    return softmax(g * (normalize(q, p) @ normalize(k, p).transpose(-2, -1)), mask)


def softmax(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Over the keys that the mask shows; all zeros where it shows none."""
    if mask is not None:
        logits = logits.masked_fill(~mask, -1e300)
    exponentials = (logits - logits.max(-1, keepdim=True).values).exp()
    if mask is not None:
        exponentials = exponentials * mask
    return exponentials / exponentials.sum(-1, keepdim=True).clamp_min(1e-300)


def attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor, p: float, mask: Tensor | None = None) -> Tensor:
    v = v.double().repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    return weights(q, k, g, p, mask) @ v
