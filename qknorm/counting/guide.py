"""What a head of attention is taught at first: where in the source the translation of a piece stands.

Of a target piece, each source piece gets as much as the count of translations gives it, times the prior that places
near the diagonal have. Pieces that the count knows nothing about are left to the model.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from qknorm.counting.alignments import DIAGONAL
from qknorm.data.batches import Batch
from qknorm.data.subwords import EOS

_KNOWN_ABOVE = 0.02  # the sum over the source below which a count says nothing
_LEAST_PROBABILITY = 1e-6


class Guide:
    """The table of translations, made ready for batches."""

    def __init__(self, translations: sparse.csr_matrix) -> None:
        table = translations.maximum(translations.T).tocoo()  # a model of several pairs may translate either way
        keys = table.row.astype(np.int64) * table.shape[1] + table.col
        order = np.argsort(keys)
        self._pieces = table.shape[1]
        self._keys, self._values = torch.from_numpy(keys[order]), torch.from_numpy(table.data[order])

    def to(self, device: torch.device) -> Guide:
        self._keys, self._values = self._keys.to(device), self._values.to(device)
        return self

    def loss(self, weights: Tensor, batch: Batch) -> Tensor:
        """How far attention weights (batch, target, source) are from the wanted ones: cross-entropy per known piece."""
        target, known = self.target_weights(batch)
        surprise = -(target * weights.clamp_min(_LEAST_PROBABILITY).log()).sum(-1)
        return (surprise * known).sum() / known.sum().clamp_min(1)

    def target_weights(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(batch, target, source), each row a distribution; and (batch, target), True where there is one."""
        source, target = batch.source[:, None, :], batch.target_out[:, :, None]
        mass = self._translation(source, target) * _prior(batch)
        mass = mass * ((source > EOS) & (target > EOS))  # special pieces translate nothing
        total = mass.sum(-1, keepdim=True)
        return mass / total.clamp_min(_LEAST_PROBABILITY), total.squeeze(-1) > _KNOWN_ABOVE

    def _translation(self, source: Tensor, target: Tensor) -> Tensor:
        """The table's entries for all pairs of (batch, 1, source) and (batch, target, 1)."""
        keys = source * self._pieces + target
        if not len(self._keys):
            return torch.zeros(keys.shape, device=keys.device)
        indices = torch.searchsorted(self._keys, keys).clamp_max(len(self._keys) - 1)
        entries: Tensor = self._values[indices] * (self._keys[indices] == keys)
        return entries


def _prior(batch: Batch) -> Tensor:
    """(batch, target, source): exp(-4 |i/n - j/m|), with each sentence's own lengths."""
    source, target = (
        torch.arange(numbers.shape[1], device=numbers.device) / (lengths[:, None] - 1).clamp_min(1)
        for numbers, lengths in (
            (batch.source, batch.source_lengths),
            (batch.target_out, batch.target_lengths),
        )
    )
    return (source[:, None, :] - target[:, :, None]).abs().mul(-DIAGONAL).exp()
