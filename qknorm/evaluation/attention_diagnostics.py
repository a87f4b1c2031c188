"""What the attention of a language model looks like: how spread out, how saturated, how close to its bound."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from qknorm.attention.module import LpNorm, QKNormAttention
from qknorm.models.gpt import GPT
from qknorm.models.learned_p import LearnedLpNorm

_SATURATED = 0.99


@torch.no_grad()
def diagnose(model: GPT, characters: Tensor) -> list[dict[str, Any]]:
    """One entry per layer for some windows (batch, length); lists have one number per head.

    entropy: of the weights, relative to that of equal weights, mean over the rows. saturated: the share of rows whose
    largest weight is above 0.99. Both leave out the first row, which has nothing to choose. largest_logit: in absolute
    value. bound: α · d^max(0, 1 − 2/p), which no logit of Lp-normalised queries and keys exceeds; None without such.
    p: only where it is learned.
    """
    found = []
    for attention, x in model.attention_inputs(characters):
        logits, weights = _logits(attention, x)
        rows = weights[:, :, 1:]
        choices = torch.arange(2, weights.shape[-1] + 1, device=x.device)
        entropy = torch.special.entr(rows).sum(-1) / choices.log()
        layer: dict[str, Any] = {
            "entropy": entropy.mean((0, 2)).tolist(),
            "saturated": (rows.amax(-1) > _SATURATED).float().mean((0, 2)).tolist(),
            "largest_logit": logits.abs().amax((0, 2, 3)).tolist(),
            "bound": _bounds(attention),
        }
        if isinstance(attention.q_norm, LearnedLpNorm):
            layer["p"] = _per_head(attention.q_norm.p, attention)
        found.append(layer)
    return found


def _logits(attention: QKNormAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """The logits, 0 where a query may not look, and the weights: (batch, heads, queries, keys)."""
    heads = attention.q_proj(x).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
    scale = 1.0 if attention.qk_norm == "lp" else attention.head_dim**-0.5
    logits = attention.q_norm(heads) @ attention.key_values(x).keys.transpose(-2, -1) * scale
    visible = torch.ones(logits.shape[-2:], dtype=torch.bool, device=x.device).tril()
    return logits.masked_fill(~visible, 0.0), logits.masked_fill(~visible, -math.inf).softmax(-1)


def _bounds(attention: QKNormAttention) -> list[float] | None:
    norm = attention.q_norm
    if not isinstance(norm, (LpNorm, LearnedLpNorm)) or norm.scale is None:
        return None
    p = torch.as_tensor(norm.p)
    return _per_head(norm.scale.abs() * attention.head_dim ** (1 - 2 / p).clamp_min(0), attention)


def _per_head(value: Tensor, attention: QKNormAttention) -> list[float]:
    numbers: list[float] = value.expand(attention.num_heads).tolist()
    return numbers
