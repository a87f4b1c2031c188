"""The operator's own checks: whoever calls it with what does not fit gets an exception. Its results: test_engine.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from qknorm.decoding.engine import packed_model
from qknorm.ops.beam_search import PackedModel, Precision
from tests.models.test_translator import model
from tests.ops.kernels import needs_kernel

pytestmark = needs_kernel

ROOM = 256  # positions that a packed model has at least


TRANSLATOR = model(encoder_layers=1, decoder_layers=1).eval()


def packed(precision: Precision = "float32") -> PackedModel:
    """Lists of its own, to be changed."""
    found = packed_model(TRANSLATOR, TRANSLATOR.directions[0], precision, 10)
    assert found is not None
    return dataclasses.replace(found, tensors=[*found.tensors], integers=[*found.integers], numbers=[*found.numbers])


def call(made: PackedModel, **changed: Any) -> tuple[Tensor, ...]:
    arguments: dict[str, Any] = {
        "pieces": torch.tensor([5, 6, 3, 3]),
        "starts": torch.tensor([0, 3, 4]),
        "limits": torch.tensor([4, 4]),
        "wanted": torch.tensor([1, 2]),
        "bos": 2,
        "beam_size": 2,
        "min_length": 0,
        "length_penalty": 0.6,
        "together": 8,
    }
    arguments |= changed
    return tuple(torch.ops.qknorm.beam_search(made.tensors, made.integers, made.numbers, *arguments.values()))


def test_what_fits_is_answered() -> None:
    counts, lengths, scores, pieces, piece_scores = call(packed())
    assert counts.tolist() == [1, 2]
    assert len(lengths) == len(scores) == 3
    assert len(piece_scores) == len(pieces) + 3


@pytest.mark.parametrize(
    "changed",
    [
        {"pieces": torch.tensor([5, 6, 30, 3])},
        {"pieces": torch.tensor([5, 6, -1, 3])},
        {"pieces": torch.tensor([5, 6, 3])},
        {"pieces": torch.tensor([5.0, 6.0, 3.0, 3.0])},
        {"pieces": torch.tensor([[5, 6, 3, 3]])},
        {"pieces": torch.tensor([5, 0, 6, 0, 3, 0, 3, 0])[::2]},
        {"starts": torch.tensor([0, 4, 3])},
        {"starts": torch.tensor([1, 3, 4])},
        {"starts": torch.tensor([0, 4, 4])},
        {"starts": torch.tensor([0, 4])},
        {"starts": torch.tensor([0, -1, 4])},
        {"limits": torch.tensor([4, -1])},
        {"limits": torch.tensor([4, ROOM])},
        {"limits": torch.tensor([4.0, 4.0])},
        {"wanted": torch.tensor([0, 1])},
        {"wanted": torch.tensor([3, 1])},
        {"wanted": torch.tensor([1])},
        {"bos": -1},
        {"bos": 30},
        {"beam_size": 0},
        {"beam_size": 2**40},
        {"together": 0},
    ],
    ids=str,
)
def test_sentences_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        call(packed(), **changed)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_model_that_lacks_anything_is_refused(precision: Precision) -> None:
    for place in range(len(packed(precision).tensors)):
        for change in (lambda tensor: tensor.flatten()[1:], lambda tensor: tensor.to(torch.float64), None):
            made = packed(precision)
            changed = [] if change is None else [change(made.tensors[place])]
            made.tensors[place : place + 1] = changed
            with pytest.raises(ValueError, match="model of a beam search"):
                call(made)


def test_a_model_with_other_numbers_is_refused() -> None:
    for place in range(len(packed().integers)):
        for wrong in (-1, 2**40):
            made = packed()
            made.integers[place] = wrong
            with pytest.raises(ValueError, match=r"."):
                call(made)
    changes: list[dict[str, Any]] = [{"integers": []}, {"numbers": []}, {"integers": [*packed().integers, 1]}]
    for short in changes:
        with pytest.raises(ValueError, match="model of a beam search"):
            call(dataclasses.replace(packed(), **short))


def test_pieces_of_a_vocabulary_that_are_not_known_are_refused() -> None:
    made = packed()
    made.tensors[-1] = made.tensors[-1].clone().fill_(30)
    with pytest.raises(ValueError, match="not known"):
        call(made)
