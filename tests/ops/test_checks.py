from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from qknorm.ops import checks


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: checks.probability("dropout_p", 1.5), "dropout_p must be between 0 and 1, not 1.5"),
        (
            lambda: checks.key_values(zeros(1, 2, 3, 4), zeros(1, 2, 5, 4)),
            "of the same positions, not (1, 2, 3, 4) and",
        ),
        (lambda: checks.choice(zeros(2, 5), 6), "the likeliest 6 of each row cannot be had"),
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


@pytest.mark.parametrize("mask", [None, zeros(3, 3), zeros(3, 3).bool(), zeros(3, 3).half()])
def test_masks_of_booleans_and_floats_pass(mask: torch.Tensor | None) -> None:
    checks.mask(mask)
