"""Key-value caches: what decoding keeps of earlier tokens.

Keys are stored normalised, rotated and without g. So each key is prepared once, and g stays with the queries.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qknorm.attention.functional import causal_mask
from qknorm.ops import checks, has_values
from qknorm.ops.shared_attention import gathered


class KeyValues(NamedTuple):
    """Keys, normalised and without g, and values, each (batch, kv_heads, length, head_dim)."""

    keys: Tensor
    values: Tensor


class KeyValueCache:
    """The keys and values of the tokens decoded so far, for inference; each attention layer has its own.

    Its capacity doubles when it is full, so n steps copy O(n) entries. Reordering beams only changes a table of where
    each of their positions is stored.
    window: a position sees itself and the window − 1 before it; what no later one sees is dropped.
    """

    def __init__(self, *, window: int | None = None) -> None:
        if window is not None and window < 1:
            raise ValueError(f"window of a {type(self).__name__} must be at least 1, not {window}")
        self.window = window
        self._room: KeyValues | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything, for the next sequences."""
        self._room = None
        self._length, self._forgotten = 0, 0
        self._history: Tensor | None = None
        """(batch, held): in which entry of the room a position lies; None where it is the entry of that number."""

    @property
    def length(self) -> int:
        """How many positions were added, including those dropped since."""
        return self._length

    @property
    def held(self) -> KeyValues:
        """A copy of all that later positions may see, which `append` adds to another cache."""
        if self._room is None:
            raise ValueError("an empty KeyValueCache holds nothing")
        filled = self.length - self._forgotten
        return KeyValues(*(side[:, :, :filled].clone() for side in self._copied()))

    def append(self, new: KeyValues) -> KeyValues:
        """Add the new positions and return all that any of them may see; `mask` says which sees which.

        The result has the dtypes of what is new. It may be a view, which later calls change: `held` is a copy.
        """
        self._add(new)
        seen = self._seen_by(new.keys.shape[2])
        return KeyValues(seen.keys.to(new.keys.dtype), seen.values.to(new.values.dtype))

    def mask(self, queries: int, is_causal: bool) -> tuple[Tensor | None, bool]:
        """Return attn_mask and is_causal for attention from the newest positions to what `append` returned."""
        assert self._room is not None
        keys, is_causal = self._reach(queries), is_causal or self.window is not None
        fits_window = self.window is None or keys <= self.window
        if fits_window and (queries == 1 or not is_causal or keys == queries):
            return None, is_causal and queries > 1
        return causal_mask(queries, keys, window=self.window, device=self._room.keys.device), False

    @property
    def is_shared(self) -> bool:
        """Whether rows have positions in common since `reorder`; then `append_shared` copies nothing."""
        return self._history is not None

    def append_shared(self, new: KeyValues) -> tuple[KeyValues, Tensor]:
        """Add one position of each row: keys and values of all entries, and (rows, length), whose each position is."""
        self._add(new)
        assert self._history is not None
        reach = self._reach(new.keys.shape[2])
        return self._held(reach), self._history[:, -reach:]

    def reorder(self, rows: Tensor) -> None:
        """Let entry i of the batch continue entry rows[i]; rows may repeat or omit entries (beams)."""
        if self._room is None:
            return
        if len(rows) <= len(self._room.keys):
            history = self._history
            if history is None:
                held = self._length - self._forgotten
                history = torch.arange(len(self._room.keys), device=rows.device)[:, None].expand(-1, held)
            self._history = history.index_select(0, rows)
        else:
            self._room = KeyValues(*(tensor.index_select(0, rows) for tensor in self._copied()))

    def crop(self, length: int) -> None:
        """Remove all positions but the first `length`, as after a rejected draft."""
        self._check_crop(length)
        if self.window is not None and 0 < self._forgotten > length - self.window + 1:
            raise ValueError(f"a cache cannot be cropped to {length} positions: some in their window are forgotten")
        self._length = length
        if self._history is not None:
            self._history = self._history[:, : length - self._forgotten]

    def _check_crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} positions cannot be cropped to {length}")

    def _reach(self, queries: int) -> int:
        """How many of the positions held the newest `queries` see between them."""
        held = self._length - self._forgotten
        return held if self.window is None else min(held, queries + self.window - 1)

    def _add(self, new: KeyValues) -> None:
        self._check(new)
        added = new.keys.shape[2]
        if self._room is None or self._length - self._forgotten + added > self._room.keys.shape[2]:
            self._make_room(new)
        assert self._room is not None
        start = self._length - self._forgotten
        for room, tensor in zip(self._room, new, strict=True):
            room[: len(tensor), :, start : start + added] = tensor
        if self._history is not None:
            entries = torch.arange(len(new.keys), device=self._history.device)[:, None].expand(-1, added)
            self._history = torch.cat([self._history, entries], 1)
        self._length += added

    def _check(self, new: KeyValues) -> None:
        if torch.is_grad_enabled() and (new.keys.requires_grad or new.values.requires_grad):
            raise RuntimeError("a KeyValueCache is for inference: use it inside torch.no_grad() or inference_mode()")
        checks.key_values(*new)
        if self._room is None:
            return
        entries = (self._room.keys if self._history is None else self._history).shape[0]
        held = (entries, self._room.keys.shape[1], self._room.keys.shape[3], self._room.values.shape[3])
        given = (*new.keys.shape[:2], new.keys.shape[3], new.values.shape[3])
        if held != given:
            raise ValueError(
                f"the cache holds (batch, heads, head_dim of keys and values) {held}, not {given}; each attention "
                "layer needs a cache of its own, and reorder(rows) changes the batch"
            )

    def _seen_by(self, queries: int) -> KeyValues:
        """All positions that the newest `queries` see between them, each entry at its own place."""
        self._copied()
        return self._held(self._reach(queries))

    def _held(self, newest: int) -> KeyValues:
        assert self._room is not None
        end = self._length - self._forgotten
        return KeyValues(*(tensor[:, :, end - newest : end] for tensor in self._room))

    def _copied(self) -> KeyValues:
        """The room, each entry at its own place."""
        assert self._room is not None
        if self._history is not None:
            history, self._history = self._history, None
            self._room = KeyValues(*(gathered(side, history) for side in self._room))
        return self._room

    def _make_room(self, new: KeyValues) -> None:
        """Move what later positions may see to a larger room."""
        held, added = self._length - self._forgotten, new.keys.shape[2]
        kept = held if self.window is None else min(held, self.window - 1)
        # What is exported has a room for every length, and no choice between them.
        room = kept + added if torch.compiler.is_exporting() else max(kept + added, 2 * kept, 16)
        entries = len(new.keys) if self._room is None else len(self._room.keys)
        # In memory the positions come first, so that a new one is written in one piece.
        larger = KeyValues(
            *(tensor.new_empty(room, entries, *tensor.shape[1::2]).permute(1, 2, 0, 3) for tensor in new)
        )
        if self._room is not None:
            for target, source in zip(larger, self._held(kept), strict=True):
                target[:, :, :kept] = source
        if self._history is not None:
            self._history = self._history[:, held - kept :]
        self._room, self._forgotten = larger, self._length - kept


class FixedKeyValueCache(KeyValueCache):
    """A `KeyValueCache` with room for `max_length` positions, so that one compiled step serves all of them.

    Its length is a tensor, and a mask covers what is not filled yet.
    """

    _forgotten = 0

    def __init__(self, max_length: int, *, window: int | None = None) -> None:
        if max_length < 1:
            raise ValueError(f"max_length of a {type(self).__name__} must be at least 1, not {max_length}")
        self.max_length = max_length
        super().__init__(window=window)

    def reset(self) -> None:
        """Start again in the same buffer, or in a new one if that is locked."""
        self._history = None
        if self._room is not None and _is_locked(self._room.keys):
            self._room = None
        if self._room is None:
            self._position: Tensor | None = None
        elif self._position is not None:
            self._position.zero_()

    @property
    def length(self) -> int:
        """How many positions are filled. Reading it waits for the device."""
        return 0 if self._position is None else int(self._position)

    def mask(self, queries: int, is_causal: bool) -> tuple[Tensor | None, bool]:
        """Return a mask, (queries, max_length), for the newest positions, and False for is_causal."""
        assert self._position is not None
        positions = torch.arange(self.max_length, device=self._position.device)
        new = self._position - queries + positions[:queries, None]
        last = new if is_causal or self.window is not None else self._position - 1
        visible = (positions <= last).expand(queries, -1)
        return visible if self.window is None else visible & (positions > new - self.window), False

    def reorder(self, rows: Tensor) -> None:
        """Let entry i of the batch continue entry rows[i]; there must be as many as before."""
        if self._room is None:
            return
        if len(rows) != len(self._room.keys):
            raise ValueError(f"a FixedKeyValueCache keeps its batch of {len(self._room.keys)}, not {len(rows)}")
        for side in self._room:
            side.copy_(side.index_select(0, rows))

    def crop(self, length: int) -> None:
        """Remove all positions but the first `length`."""
        self._check_crop(length)
        if self._position is not None:
            self._position = torch.full_like(self._position, length)  # inference_mode may have made the old one

    def _add(self, new: KeyValues) -> None:
        self._check(new)
        added = new.keys.shape[2]
        if self._room is None or self._position is None:
            self._make_room(new)
        assert self._room is not None
        assert self._position is not None
        if self._position.is_cpu and has_values(self._position) and self.length + added > self.max_length:
            name = f"a FixedKeyValueCache of {self.max_length}"
            raise ValueError(f"{self.length + added} positions do not fit into {name}")
        positions = self._position + torch.arange(added, device=self._position.device)
        for room, tensor in zip(self._room, new, strict=True):
            room.index_copy_(2, positions, tensor.to(room.dtype))
        self._position.add_(added)

    def _seen_by(self, queries: int) -> KeyValues:  # noqa: ARG002
        assert self._room is not None
        return self._room

    def _make_room(self, new: KeyValues) -> None:
        """Zeros, since attention multiplies by what is not filled yet, if only with a weight of zero."""
        sides = (tensor.new_zeros(*tensor.shape[:2], self.max_length, tensor.shape[3]) for tensor in new)
        self._room = KeyValues(*sides)
        self._position = torch.zeros((), dtype=torch.int64, device=new.keys.device)


def _is_locked(tensor: Tensor) -> bool:
    """Whether a tensor was made in inference_mode and we are outside it, where it cannot be changed."""
    if torch.compiler.is_compiling():  # `is_inference` cannot be compiled
        return False
    return tensor.is_inference() and not torch.is_inference_mode_enabled()
