"""What the taught head is taught, against the formula as it is written."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import sparse

from qknorm.counting.guide import Guide
from qknorm.data.batches import Batch

PIECES = 12


def guide(**entries: float) -> Guide:
    """Entries of the table such as s5t9=0.5."""
    table = np.zeros((PIECES, PIECES), np.float32)
    for name, value in entries.items():
        source, target = name[1:].split("t")
        table[int(source), int(target)] = value
    return Guide(sparse.csr_matrix(table))


BATCH = Batch.of([[5, 6, 7], [6]], [[9, 10], [11, 9, 10, 4]])


def test_wanted_is_the_table_times_the_prior_normalised() -> None:
    weights, known = guide(s5t9=0.5, s6t9=0.25, s7t10=0.01).target_weights(BATCH)
    assert known.tolist() == [[True, False, False, False, False], [False, True, False, False, False]]
    prior = [math.exp(-4 * abs(i / 3 - 0)) for i in range(2)]
    mass = [0.5 * prior[0], 0.25 * prior[1]]
    expected = [mass[0] / sum(mass), mass[1] / sum(mass), 0.0, 0.0]
    assert weights[0, 0].tolist() == pytest.approx(expected)
    assert weights[1, 1].tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_a_table_serves_both_directions() -> None:
    there, back = guide(s5t9=0.5).target_weights(BATCH), guide(s9t5=0.5).target_weights(BATCH)
    assert all(torch.equal(first, second) for first, second in zip(there, back, strict=True))


def test_special_pieces_and_an_empty_table_teach_nothing() -> None:
    for nothing in (guide(), guide(s3t3=0.9, s1t9=0.9)):
        weights, known = nothing.target_weights(BATCH)
        assert not known.any()
        assert weights.sum() == 0
        assert nothing.loss(torch.rand(weights.shape), BATCH) == 0


def test_the_loss_is_least_where_attention_is_what_is_wanted() -> None:
    """Cross-entropy: its gradient with respect to the logits of the weights vanishes there, and it is the entropy."""
    teacher = guide(s5t9=0.5, s6t9=0.25, s6t10=0.4)
    weights, known = teacher.target_weights(BATCH)
    entropy = -(weights * weights.clamp_min(1e-9).log()).sum(-1)[known].mean()
    torch.testing.assert_close(teacher.loss(weights, BATCH), entropy)
    assert teacher.loss(torch.full_like(weights, 0.25), BATCH) > entropy
