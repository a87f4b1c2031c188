"""The best classes of each row of logits, from one reading of them (`likeliest.cpp`)."""

from __future__ import annotations

import torch
from torch import Tensor

from qknorm.ops import _dispatch, checks


def likeliest(logits: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row of logits the `wanted` largest log-probabilities, where they are, and log Σ exp."""
    checks.choice(logits, wanted)
    if _dispatch.is_left_to_torch(logits) or _dispatch.is_differentiated(logits):
        return _plain(logits, wanted)
    values, places, sums = _OPERATOR(logits, wanted)
    return values, places, sums


def _plain(logits: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    sums = logits.logsumexp(-1)
    values, places = logits.topk(wanted)
    return values - sums[:, None], places, sums


def _fake(logits: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = logits.shape[0]
    places = logits.new_empty(rows, wanted, dtype=torch.int64)
    return logits.new_empty(rows, wanted), places, logits.new_empty(rows)


_OPERATOR = _dispatch.operator("likeliest(Tensor logits, SymInt wanted) -> (Tensor, Tensor, Tensor)", _plain, _fake)
_dispatch.differentiable_no_further("likeliest")
