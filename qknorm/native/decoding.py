"""The steps of decoding between the matrix products (`decoding.cpp`), and the same in torch's operations."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from qknorm.native import checks, compiler


def can_serve(*tensors: Tensor) -> bool:
    """Whether the kernels may be used: float32 on a CPU, for inference."""
    return _are_plain_numbers(tensors) and compiler.can_serve(*tensors) and _kernels() is not None


def can_attend(query: Tensor, keys: Tensor, values: Tensor, *indices: Tensor) -> bool:
    """Whether the kernels attend from such queries to such keys and values: shapes as `checks` wants them."""
    return (
        _are_plain_numbers((query, keys, values))
        and compiler.can_serve(query, keys, values, *indices)
        and keys.shape == values.shape
        and keys.stride(3) == values.stride(3) == 1
        and min(keys.shape[1:]) > 0
        and _kernels() is not None
    )


def _are_plain_numbers(tensors: tuple[Tensor, ...]) -> bool:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    return all(tensor.dtype is torch.float32 for tensor in tensors)


def attend_to_history(query: Tensor, keys: Tensor, values: Tensor, history: Tensor, scale: float) -> Tensor:
    """One new position of each hypothesis against a cache that beams have in common.

    query: (rows, heads, 1, head_dim). keys, values: (slots, key heads, room, head_dim) in one layout. history: (rows,
    length), the slot in which each position of a hypothesis lies. Returns (rows, heads, 1, head_dim).
    """
    kernels = compiler.required(_kernels())
    query = _with_rows(query)
    rows, heads, _, row = query.shape
    length = history.shape[1]
    out = query.new_empty(rows, heads, 1, row)
    shape = (rows, heads, keys.shape[1], length, row, history.stride(0))
    kernels.attend_to_history(
        query.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(), history.data_ptr(),
        compiler.numbers(shape), compiler.numbers((*keys.stride()[:3], query.stride(0), query.stride(1))), scale,
        compiler.threads(rows * length * heads * row),
    )  # fmt: skip
    return out


def attend_to_shared(
    query: Tensor, keys: Tensor, values: Tensor, entries: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """One position of each hypothesis against memories that several have in common.

    query: (rows, heads, 1, head_dim). keys, values: (entries, key heads, length, head_dim). entries: (rows,), whose
    memory each row looks at. lengths: (entries,), how many of its positions are real. Returns the shape of query.
    """
    kernels = compiler.required(_kernels())
    query, entries, lengths = _with_rows(query), entries.contiguous(), lengths.contiguous()
    rows, heads, _, row = query.shape
    out = query.new_empty(rows, heads, 1, row)
    is_outside = kernels.attend_to_shared(
        query.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(), entries.data_ptr(), lengths.data_ptr(),
        compiler.numbers((rows, heads, keys.shape[1], keys.shape[2], row, keys.shape[0])),
        compiler.numbers((*keys.stride()[:3], query.stride(0), query.stride(1), *values.stride()[:3])), scale,
        compiler.threads(rows * heads * keys.shape[2] * row),
    )  # fmt: skip
    if is_outside:
        checks.shared_ranges(keys, entries, lengths)
    return out


def likeliest(logits: Tensor, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row of logits: its `wanted` largest log-probabilities, where they are, and log Σ exp."""
    checks.choice(logits, wanted)
    if not can_serve(logits) or not logits.is_contiguous():
        sums = logits.logsumexp(-1)
        values, places = logits.topk(wanted)
        return values - sums[:, None], places, sums
    kernels = compiler.required(_kernels())
    rows, classes = logits.shape
    values, sums = logits.new_empty(rows, wanted), logits.new_empty(rows)
    places = torch.empty(rows, wanted, dtype=torch.long, device="cpu")
    kernels.likeliest(
        logits.data_ptr(), rows, classes, wanted, values.data_ptr(), places.data_ptr(), sums.data_ptr(),
        compiler.threads(logits.numel()),
    )  # fmt: skip
    return values, places, sums


def _with_rows(query: Tensor) -> Tensor:
    return query if query.stride(3) == 1 else query.contiguous()


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    loaded = compiler.load("decoding.cpp")
    if loaded is not None:
        pointer, integer, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        loaded.attend_to_history.argtypes = [*[pointer] * 7, ctypes.c_float, threads]
        loaded.likeliest.argtypes = [pointer, integer, integer, integer, pointer, pointer, pointer, threads]
        loaded.attend_to_shared.argtypes = [*[pointer] * 8, ctypes.c_float, threads]
        loaded.attend_to_history.restype = loaded.likeliest.restype = None
        loaded.attend_to_shared.restype = ctypes.c_int
    return loaded
