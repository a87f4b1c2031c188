"""Which sentences are learned together, and the tensors a model reads.

The order of the batches is a function of (seed, pass) alone, and the sampler's position can be saved and restored, so
that a run that was interrupted goes on as if nothing had happened.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qknorm.data.subwords import BOS, EOS, PAD, UNK, Subwords

Rows = NDArray[np.int64]

# Batches are cut at most this full at first, since padding fills them up.
_FIRST_FILL = 0.9
# Wasteful batches are split until all positions together are at most this many times the real tokens,
# or until there are this many times as many batches as the budget allows: a small corpus has few of each length.
_PADDED_PER_REAL = 1.075
_BATCHES_PER_NEEDED = 1.5


class Encoded:
    """Many sequences of piece numbers in one array."""

    def __init__(self, numbers: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        self.numbers, self.offsets = numbers, offsets

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> Encoded:
        lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        flat = (number for sequence in sequences for number in sequence)
        return cls(np.fromiter(flat, np.int32, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.numbers[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[list[int]]:
        return (self[row].tolist() for row in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as tensors, padded at the right. Nobody else makes masks."""

    source: Tensor
    """(batch, source length): pieces, EOS, PAD …"""
    target_in: Tensor
    """(batch, target length): BOS, pieces, PAD …, what the decoder reads."""
    target_out: Tensor
    """(batch, target length): pieces, EOS, PAD …, what it must say."""
    direction: int = 0
    """Which language pair, where several are trained together."""

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], direction: int = 0) -> Batch:
        return cls(
            _padded([[*source, EOS] for source in sources]),
            _padded([[BOS, *target] for target in targets]),
            _padded([[*target, EOS] for target in targets]),
            direction,
        )

    def __len__(self) -> int:
        return self.source.shape[0]

    @property
    def source_mask(self) -> Tensor:
        """(batch, 1, 1, source length), True where a piece stands: what may be attended to."""
        return (self.source != PAD)[:, None, None, :]

    @property
    def source_lengths(self) -> Tensor:
        """(batch,), EOS included."""
        return (self.source != PAD).sum(1)

    @property
    def target_lengths(self) -> Tensor:
        """(batch,), EOS included."""
        return (self.target_out != PAD).sum(1)

    @property
    def target_tokens(self) -> int:
        """How many pieces, EOS included, the loss is averaged over."""
        return int(self.target_lengths.sum())

    def to(self, device: torch.device | str) -> Batch:
        source, target_in, target_out = (
            tensor.to(device, non_blocking=True) for tensor in (self.source, self.target_in, self.target_out)
        )
        return Batch(source, target_in, target_out, self.direction)

    def with_word_dropout(self, probability: float, generator: torch.Generator | None = None) -> Batch:
        """A new batch in which some input pieces became UNK; BOS, EOS, PAD and what must be said stay as they are."""
        if probability == 0:
            return self

        def dropped(numbers: Tensor) -> Tensor:
            drawn = torch.rand(numbers.shape, generator=generator, device=numbers.device) < probability
            return torch.where(drawn & (numbers > EOS), UNK, numbers)

        return replace(self, source=dropped(self.source), target_in=dropped(self.target_in))


def _padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([[*sequence, *[PAD] * (longest - len(sequence))] for sequence in sequences])


class PairData(Protocol):
    """The sentence pairs of one language pair, as they are learned in a given pass."""

    def __len__(self) -> int: ...

    def in_pass(self, number: int) -> tuple[Encoded, Encoded]: ...


@dataclass(frozen=True)
class FixedPairs:
    """The same pieces in every pass."""

    source: Encoded
    target: Encoded

    def __len__(self) -> int:
        return len(self.source)

    def in_pass(self, number: int) -> tuple[Encoded, Encoded]:  # noqa: ARG002
        return self.source, self.target


@dataclass(frozen=True)
class DropoutPairs:
    """Pieces drawn anew in each pass by BPE-dropout, from the seed, the pass and the line alone."""

    subwords: Subwords
    sources: Sequence[str]
    targets: Sequence[str]
    dropout: float
    seed: int

    def __len__(self) -> int:
        return len(self.sources)

    def in_pass(self, number: int) -> tuple[Encoded, Encoded]:
        return self._drawn(self.sources, f"{self.seed} {number} source"), self._drawn(
            self.targets, f"{self.seed} {number} target"
        )

    def _drawn(self, lines: Sequence[str], key: str) -> Encoded:
        return Encoded.from_lists(
            [
                self.subwords.encode_with_dropout(line, self.dropout, random.Random(f"{key} {row}"))
                for row, line in enumerate(lines)
            ]
        )


def plan(source: NDArray[np.int64], target: NDArray[np.int64], budget: int, seed: int, number: int) -> list[Rows]:
    """The batches of one pass, as row numbers, in the order of learning.

    source, target: lengths with EOS. Each batch has `sentences × longest side ≤ budget`, unless one sentence alone is
    longer. Sentences of like length meet, but by chance: ties are broken and batches ordered anew in each pass.
    """
    rng = np.random.Generator(np.random.PCG64([seed, number]))
    lengths = _Lengths(source, target, rng)
    whole = np.arange(len(source))
    batches = lengths.with_less_padding(list(lengths.bisected(whole, budget)), budget)
    return [np.sort(batches[i]) for i in np.argsort(rng.random(len(batches)))]


class _Lengths:
    """The work of `plan`: cutting a cloud of (source length, target length) points into rectangles of little waste."""

    def __init__(self, source: NDArray[np.int64], target: NDArray[np.int64], rng: np.random.Generator) -> None:
        self.source, self.target = source, target
        self.longest = np.maximum(source, target)
        # Lengths are whole numbers, so a fraction added to them only breaks ties.
        jittered = source + rng.random(len(source)), target + rng.random(len(source))
        self.sort_keys = (*jittered, np.maximum(*jittered))

    def positions(self, rows: Rows) -> int:
        """How many positions a batch of these rows has, padding included."""
        return len(rows) * int(self.source[rows].max() + self.target[rows].max())

    def bisected(self, rows: Rows, budget: int) -> Iterator[Rows]:
        """Halve by the sort key that leaves the least padding, until every part fits the budget."""
        if len(rows) == 1 or len(rows) * self.longest[rows].max() <= budget:
            yield rows
            return
        volume = self.longest[rows].sum()
        parts = max(2, int(np.ceil(volume / (_FIRST_FILL * budget))))
        cuts = []
        for key in self.sort_keys:
            ordered = rows[np.argsort(key[rows])]
            place = np.searchsorted(np.cumsum(self.longest[ordered]), volume * (parts // 2) / parts)
            place = int(np.clip(place, 1, len(rows) - 1))
            cuts.append((ordered[:place], ordered[place:]))
        for half in min(cuts, key=lambda halves: sum(map(self.positions, halves))):
            yield from self.bisected(half, budget)

    def with_less_padding(self, batches: list[Rows], budget: int) -> list[Rows]:
        """Split where a split saves most, until padding is within its limit or batches would become too small."""
        real = int((self.source + self.target).sum())
        most = _BATCHES_PER_NEEDED * self.longest.sum() / budget
        positions = sum(map(self.positions, batches))
        queue: list[tuple[int, int, Rows, tuple[Rows, Rows]]] = []  # the second number only breaks ties

        def push(rows: Rows) -> None:
            saving, halves = self.best_split(rows)
            heapq.heappush(queue, (-saving, int(rows[0]), rows, halves))

        for rows in batches:
            push(rows)
        while positions > _PADDED_PER_REAL * real and queue[0][0] < 0 and len(queue) < most:
            saved, _, _, halves = heapq.heappop(queue)
            positions += saved
            for half in halves:
                push(half)
        return [rows for _, _, rows, _ in queue]

    def best_split(self, rows: Rows) -> tuple[int, tuple[Rows, Rows]]:
        """The cut in two, by source or target length, that saves most positions; and how many."""
        best: tuple[int, tuple[Rows, Rows]] = (0, (rows, rows[:0]))
        whole, counts = self.positions(rows), np.arange(1, len(rows))
        for key in self.sort_keys[:2]:
            ordered = rows[np.argsort(key[rows])]
            source, target = self.source[ordered], self.target[ordered]
            left = np.maximum.accumulate(source) + np.maximum.accumulate(target)
            right = (np.maximum.accumulate(source[::-1]) + np.maximum.accumulate(target[::-1]))[::-1]
            cost = counts * left[:-1] + (len(rows) - counts) * right[1:]
            if len(cost) and whole - cost.min() > best[0]:
                place = int(cost.argmin()) + 1
                best = (int(whole - cost.min()), (ordered[:place], ordered[place:]))
        return best


class BatchSampler:
    """An endless stream of batches over one or several texts.

    Of several, one is drawn for each batch by weight · (its number of batches)^0.7, so that small ones are seen more
    often than their size. With several ranks, each takes every `world_size`-th batch of the one common stream.
    numbers: what a batch of each text has for its direction; without it, texts are counted.
    own: which texts are one's own: from batch `own_from` on the others are not drawn any more.
    """

    _SMOOTHING = 0.7

    def __init__(
        self,
        texts: Sequence[PairData],
        budget: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        weights: Sequence[float] | None = None,
        numbers: Sequence[int] | None = None,
        own: Sequence[bool] | None = None,
    ) -> None:
        if not texts or not all(map(len, texts)):
            raise ValueError("a sampler needs at least one text, and sentences in each")
        self._texts, self._budget, self._seed = texts, budget, seed
        self._weights = np.ones(len(texts)) if weights is None else np.array(weights)
        self._numbers = range(len(texts)) if numbers is None else numbers
        self._is_own = np.ones(len(texts)) if own is None else np.array(own)
        self.own_from: int | None = None
        self._rank, self._world_size = rank, world_size
        self._drawn = 0
        self._passes = [0] * len(texts)
        self._positions = [0] * len(texts)
        self._load_passes()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            # Every rank advances past the batches of all, so that between two steps all are in the same state.
            drawn = [self._next(make=rank == self._rank) for rank in range(self._world_size)]
            batch = drawn[self._rank]
            assert batch is not None
            yield batch

    @property
    def drawn(self) -> int:
        """How many batches all ranks have had."""
        return self._drawn

    def state_dict(self) -> dict[str, Any]:
        """The position; JSON can hold it."""
        return {"drawn": self._drawn, "passes": list(self._passes), "positions": list(self._positions)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn, self._passes, self._positions = state["drawn"], list(state["passes"]), list(state["positions"])
        self._load_passes()

    def _next(self, make: bool) -> Batch | None:
        """Advance the common stream by one batch, and make it if it is ours."""
        text = self._draw_text()
        if self._positions[text] >= len(self._plans[text]):  # more, if batches have become larger
            self._passes[text] += 1
            self._positions[text] = 0
            self._load_pass(text)
        rows = self._plans[text][self._positions[text]]
        self._positions[text] += 1
        self._drawn += 1
        if not make:
            return None
        source, target = self._data[text]
        sources, targets = ([side[row].tolist() for row in rows] for side in (source, target))
        return Batch.of(sources, targets, self._numbers[text])

    def _draw_text(self) -> int:
        if len(self._texts) == 1:
            return 0
        weights = self._weights * np.array([len(batches) for batches in self._plans], dtype=float) ** self._SMOOTHING
        if self.own_from is not None and self._drawn >= self.own_from:
            weights *= self._is_own
        drawn = random.Random(f"{self._seed} pair {self._drawn}").random()
        return int(np.searchsorted(np.cumsum(weights / weights.sum()), drawn))

    def _load_passes(self) -> None:
        self._data: list[tuple[Encoded, Encoded]] = [(_NOTHING, _NOTHING)] * len(self._texts)
        self._plans: list[list[Rows]] = [[] for _ in self._texts]
        for text in range(len(self._texts)):
            self._load_pass(text)

    def _load_pass(self, text: int) -> None:
        number = self._passes[text]
        source, target = self._data[text] = self._texts[text].in_pass(number)
        # A different order for each text, and EOS counts.
        self._plans[text] = plan(source.lengths + 1, target.lengths + 1, self._budget, self._seed + text, number)


_NOTHING = Encoded.from_lists([])
