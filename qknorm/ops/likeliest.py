"""The best classes of each row of logits, from one reading of them (`likeliest.cpp`)."""

from __future__ import annotations

import torch
from torch import Tensor

from qknorm.ops import _dispatch, checks


def likeliest(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row of logits the `k` largest log-probabilities, where they are, and log Σ exp."""
    checks.choice(logits, k)
    if _dispatch.is_left_to_torch(logits) or _dispatch.is_differentiated(logits):
        return _plain(logits, k)
    values, indices, sums = _OPERATOR(logits, k)
    return values, indices, sums


def _plain(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    sums = logits.logsumexp(-1)
    values, indices = logits.topk(k)
    return values - sums[:, None], indices, sums


def _fake(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = logits.shape[0]
    indices = logits.new_empty(rows, k, dtype=torch.int64)
    return logits.new_empty(rows, k), indices, logits.new_empty(rows)


_OPERATOR = _dispatch.operator("likeliest(Tensor logits, SymInt k) -> (Tensor, Tensor, Tensor)", _plain, _fake)
