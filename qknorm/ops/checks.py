"""What the operators ask of their arguments, before a route is chosen: one sentence per mistake, on every route.

They compare types and shapes, which costs a microsecond; the last two look at values, and belong to the twins. A kernel
checks whatever it relies on by itself as well, since anybody may call `torch.ops.qknorm`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def probability(name: str, p: float) -> None:
    """A share of elements to drop: as in torch, all of them may be."""
    if not 0 <= p <= 1:
        raise ValueError(f"{name} must be between 0 and 1, not {p}")


def heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """(..., heads, length, head_dim): as many key heads as query heads, or fewer where that is asked for."""
    if min(query.dim(), key.dim(), value.dim()) < 3:
        shapes = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        raise ValueError(f"query, key and value must be (..., heads, length, head_dim); got shapes {shapes}")
    of_queries, of_keys, of_values = query.shape[-3], key.shape[-3], value.shape[-3]
    if of_queries == of_keys == of_values:
        return
    if enable_gqa:
        fit = of_keys and of_values and not (of_queries % of_keys or of_queries % of_values)
    else:  # a single head is broadcast, as everywhere in torch
        fit = of_keys in (1, of_queries) and of_values in (1, of_queries)
    if not fit:
        counts = f"query has {of_queries} heads, key {of_keys} and value {of_values}"
        raise ValueError(f"{counts}: fewer key and value heads need enable_gqa=True and must divide those of the query")


def mask(attn_mask: Tensor | None) -> None:
    """True where a query may attend, or floats to add; whole numbers could mean either."""
    if attn_mask is not None and attn_mask.dtype is not torch.bool and not attn_mask.is_floating_point():
        raise TypeError(f"attn_mask must be boolean or floating-point, not {attn_mask.dtype}")


def mask_fits(attn_mask: Tensor | None, query: Tensor, key: Tensor) -> None:
    """A mask is broadcast to (batch, heads, queries, keys); compiled code, whose sizes may be unknown, does not ask."""
    if attn_mask is None or torch.compiler.is_compiling():
        return
    full = (*query.shape[:-1], key.shape[-2])
    others = (*key.shape[:-2], *full[-2:])  # one of the two may have a single entry where the other has more
    sizes = zip(attn_mask.shape[::-1], full[::-1], others[::-1], strict=False)
    if attn_mask.dim() > len(full) or not all(size == 1 or size in allowed for size, *allowed in sizes):
        raise ValueError(
            f"attn_mask of shape {tuple(attn_mask.shape)} is not broadcast to (batch, heads, queries, keys), here "
            f"{tuple(full)}: pass a mask of (batch, keys) as mask[:, None, None, :]"
        )


def loss(states: Tensor, weight: Tensor, bias: Tensor, target: Tensor, label_smoothing: float) -> None:
    """states: (rows, dim); weight: (classes, dim); bias: (classes,); target: (rows,), the number of a class each."""
    fit = states.dim() == weight.dim() == 2 and bias.dim() == target.dim() == 1
    if not fit or weight.shape != (bias.shape[0], states.shape[1]) or target.shape[0] != states.shape[0]:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (states, weight, bias, target))
        raise ValueError(f"the loss needs (rows, dim), (classes, dim), (classes,) and (rows,), not {shapes}")
    numbers("target", target)
    same_device(states, weight=weight, bias=bias, target=target)
    probability("label_smoothing", label_smoothing)


def has_memory(tensor: Tensor) -> None:
    """A storage can be freed while tensors still refer to it; torch's products refuse these, but its sums read them."""
    if tensor.numel() and not tensor.untyped_storage().nbytes():
        raise ValueError(f"the memory of a tensor of shape {tuple(tensor.shape)} was freed while it was needed")


def classes(target: Tensor, number: int) -> None:
    """Whether every class exists."""
    inside(target, number, "target holds class {}, but the classes are 0 to {}")


def key_values(keys: Tensor, values: Tensor) -> None:
    """keys and values of the same positions: (batch, heads, length, head_dim)."""
    alike = keys.shape == values.shape or keys.shape[:3] == values.shape[:3]  # slicing a shape takes longer than all
    if not alike or keys.dim() != 4 or values.dim() != 4:
        shapes = f"not {tuple(keys.shape)} and {tuple(values.shape)}"
        raise ValueError(f"keys and values must be (batch, heads, length, head_dim) of the same positions, {shapes}")


def single_queries(query: Tensor, keys: Tensor, values: Tensor) -> None:
    """query: (rows, heads, 1, head_dim), for keys and values of as many heads or fewer."""
    key_values(keys, values)
    if query.dim() != 4 or query.shape[2] != 1 or query.shape[3] != keys.shape[3]:
        shapes = f"{tuple(query.shape)} for keys of shape {tuple(keys.shape)}"
        raise ValueError(f"query must be (rows, heads, 1, head_dim), not {shapes}")
    heads(query, keys, values, enable_gqa=True)


def shared_memories(query: Tensor, keys: Tensor, values: Tensor, entries: Tensor, lengths: Tensor) -> None:
    """Single queries, the entry of the memory that each looks at, (rows,), and how long each entry is, (batch,)."""
    single_queries(query, keys, values)
    for name, found_of, many in (("entries", entries, query.shape[0]), ("lengths", lengths, keys.shape[0])):
        numbers(name, found_of)
        if found_of.shape != (many,):
            raise ValueError(f"{name} must have shape ({many},), not {tuple(found_of.shape)}")
    same_device(query, keys=keys, values=values, entries=entries, lengths=lengths)


def shared_ranges(keys: Tensor, entries: Tensor, lengths: Tensor) -> None:
    """Whether every entry exists and no length is beyond the memory."""
    inside(entries, keys.shape[0], "entries holds {}, but the memory has the entries 0 to {}")
    inside(lengths, keys.shape[2] + 1, "lengths holds {}, but a memory here has 0 to {} positions")


def numbers(name: str, tensor: Tensor) -> None:
    if tensor.dtype is not torch.int64:
        raise TypeError(f"{name} must hold whole numbers of type torch.int64, not {tensor.dtype}")


def same_device(first: Tensor, **others: Tensor) -> None:
    if first.is_cpu and all(tensor.is_cpu for tensor in others.values()):  # a tenth of the time of what follows
        return
    for name, tensor in others.items():
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device}, but what it belongs to is on {first.device}")


def inside(tensor: Tensor, end: int, sentence: str) -> None:
    """Every element in 0 … end − 1, or a ValueError with the first that is not."""
    outside = tensor[(tensor < 0) | (tensor >= end)]
    if outside.numel():
        raise ValueError(sentence.format(int(outside[0]), end - 1))
