"""A beam search of a whole translator as one operator (`beam_search.cpp`): from pieces to hypotheses, on a CPU.

Its definition is `qknorm.decoding.beam`, which serves wherever this does not; so it has no twin of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import _dispatch

Precision = Literal["float32", "int8"]

# Both as in panels.h.
PANEL = 32
_BYTES_TOGETHER = 4
_LARGEST_BYTE = 127

NORMS = ("none", "layer", "rms", "lp")
"""Kinds of norms, in the order of transformer.h."""

_dispatch.define_kernel(
    "beam_search(Tensor[] tensors, int[] integers, float[] numbers, Tensor pieces, Tensor starts, Tensor limits, "
    "Tensor wanted, int bos, int beam_size, int min_length, float length_penalty, int together) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def is_available() -> bool:
    """Whether this machine has a kernel for it."""
    return _dispatch.has_kernel("beam_search")


@dataclass
class PackedModel:
    """The weights of a model as the operator reads them, one after the other.

    Products are of floats, or of bytes: then each output has a scale for its weights, and each row that is multiplied
    has one for its numbers, so that a row's result does not depend on other rows.
    """

    precision: Precision
    tensors: list[Tensor] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)

    def floats(self, tensor: Tensor) -> None:
        self.tensors.append(tensor.detach().float().contiguous())

    def matrix(self, weight: Tensor, bias: Tensor | None) -> None:
        """Add (outputs, inputs), in panels of outputs side by side."""
        outputs, weight = len(weight), weight.detach().float()
        missing = -outputs % PANEL
        if self.precision == "int8":
            self._bytes(weight, missing)
        else:
            self.tensors.append(_in_panels(F.pad(weight, (0, 0, 0, missing)), 1))
        self.floats(F.pad(weight.new_zeros(outputs) if bias is None else bias.detach(), (0, missing)))

    def _bytes(self, weight: Tensor, missing: int) -> None:
        scales = weight.abs().amax(1) / _LARGEST_BYTE
        rounded = (weight / scales[:, None]).nan_to_num(0.0, 0.0, 0.0).round().clamp(-_LARGEST_BYTE, _LARGEST_BYTE)
        rounded = F.pad(rounded, (0, -weight.shape[1] % _BYTES_TOGETHER, 0, missing))
        self.tensors.append(_in_panels(rounded.to(torch.int8), _BYTES_TOGETHER))
        self.floats(F.pad(scales, (0, missing)))
        self.tensors.append(rounded.sum(1).to(torch.int32))


def _in_panels(weight: Tensor, together: int) -> Tensor:
    """(panels, inputs / together, PANEL, together): what is multiplied at the same time lies side by side."""
    return weight.view(-1, PANEL, weight.shape[1] // together, together).transpose(1, 2).contiguous()


@dataclass(frozen=True)
class Search:
    """What is asked of the operator, beside the sentences."""

    bos: int
    beam_size: int
    min_length: int
    length_penalty: float
    together: int
    """How many sentences a thread works on at a time."""


class Found(NamedTuple):
    """One hypothesis: its pieces without the end, its score, and the log-probability of each piece, the end's too."""

    pieces: list[int]
    score: float
    piece_scores: list[float]


def beam_search(
    model: PackedModel, sources: Sequence[Sequence[int]], limits: Sequence[int], wanted: Sequence[int], search: Search
) -> list[list[Found] | None]:
    """For each source, its end included, the hypotheses that are wanted; None where the output is not a number."""
    ends = torch.tensor([0, *map(len, sources)]).cumsum(0)
    pieces = torch.tensor([piece for source in sources for piece in source], dtype=torch.int64)
    lists = (pieces, ends, torch.tensor(limits, dtype=torch.int64), torch.tensor(wanted, dtype=torch.int64))
    settings = (search.bos, search.beam_size, search.min_length, search.length_penalty, search.together)
    parts = torch.ops.qknorm.beam_search(model.tensors, model.integers, model.numbers, *lists, *settings)
    return _hypotheses(*(part.tolist() for part in parts))


def _hypotheses(
    counts: list[int], lengths: list[int], scores: list[float], pieces: list[int], piece_scores: list[float]
) -> list[list[Found] | None]:
    result: list[list[Found] | None] = []
    hypothesis = piece = 0
    for count in counts:
        found: list[Found] = []
        for _ in range(count):
            length, score = lengths[hypothesis], scores[hypothesis]
            first = piece + hypothesis  # each has an end, which has a score
            found.append(Found(pieces[piece : piece + length], score, piece_scores[first : first + length + 1]))
            hypothesis, piece = hypothesis + 1, piece + length
        result.append(None if count < 0 else found)
    return result
