from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from qknorm.ops import checks


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def heads(query: tuple[int, ...], key: tuple[int, ...], enable_gqa: bool) -> None:
    checks.heads(zeros(*query), zeros(*key), zeros(*key), enable_gqa)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: checks.probability("dropout_p", 1.5), "dropout_p must be between 0 and 1, not 1.5"),
        (lambda: heads((3, 4), (3, 4), False), "must be (..., heads, length, head_dim)"),
        (lambda: heads((4, 1, 8), (2, 1, 8), False), "fewer key and value heads need enable_gqa=True"),
        (lambda: heads((4, 1, 8), (3, 1, 8), True), "must divide those of the query"),
        (
            lambda: checks.key_values(zeros(1, 2, 3, 4), zeros(1, 2, 5, 4)),
            "of the same positions, not (1, 2, 3, 4) and",
        ),
        (lambda: checks.classes(torch.tensor([0, 5]), 5), "target holds class 5, but the classes are 0 to 4"),
    ],
)
def test_a_mistake_is_one_sentence(check: Callable[[], None], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        check()
    assert "\n" not in str(error.value)


def test_numbers_of_another_type_are_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"entries must hold whole numbers of type torch\.int64, not torch\.int32"):
        checks.numbers("entries", torch.zeros(3, dtype=torch.int32))
    with pytest.raises(TypeError, match=r"attn_mask must be boolean or floating-point, not torch\.uint8"):
        checks.mask(torch.zeros(3, 3, dtype=torch.uint8))


@pytest.mark.parametrize("mask", [None, zeros(3, 3), zeros(3, 3).bool(), zeros(3, 3).half()])
def test_masks_of_booleans_and_floats_and_shared_heads_pass(mask: torch.Tensor | None) -> None:
    checks.mask(mask)
    heads((4, 1, 8), (2, 1, 8), enable_gqa=True)
