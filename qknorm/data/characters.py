"""A text as numbers of characters, and random windows of it whose position can be saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qknorm.data.folds import TextBlock, window_starts
from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError


class Characters:
    """The vocabulary of a text: its characters in the order of their code points."""

    def __init__(self, known: Sequence[str]) -> None:
        self.known = list(known)
        self._numbers = {character: number for number, character in enumerate(self.known)}

    @classmethod
    def of(cls, text: str) -> Characters:
        return cls(sorted(set(text)))

    @classmethod
    def load(cls, path: Path) -> Characters:
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} cannot be used: {error}") from None

    def save(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(json.dumps(self.known, ensure_ascii=False).encode())

    def __len__(self) -> int:
        return len(self.known)

    def encode(self, text: str) -> Tensor:
        """(length,); an InputError that names the first character which the text of the vocabulary did not have."""
        try:
            return torch.tensor([self._numbers[character] for character in text], dtype=torch.long)
        except KeyError as error:
            unseen = error.args[0]
            place = text.index(unseen) + 1
            raise InputError(
                f"the character {unseen!r} (U+{ord(unseen):04X}, number {place} of the text) does not occur in what "
                f"the model has read; it knows {len(self)} characters"
            ) from None

    def decode(self, numbers: Sequence[int]) -> str:
        return "".join(self.known[number] for number in numbers)


@dataclass(frozen=True)
class CharacterText:
    """A text, its vocabulary, and the text in numbers."""

    characters: Characters
    numbers: Tensor
    lines: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> CharacterText:
        lines = list(read_lines(path))
        text = "\n".join(lines) + "\n"
        if not text.strip():
            raise InputError(f"{path} is empty: there is nothing to learn from")
        characters = Characters.of(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(characters, characters.encode(text), len(lines), digest)

    def windows(
        self, starts: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]], length: int
    ) -> tuple[Tensor, Tensor]:
        """Inputs and what follows each of their characters, both (windows, length)."""
        positions = torch.as_tensor(starts)[:, None] + torch.arange(length + 1)
        rows = self.numbers[positions]
        return rows[:, :-1], rows[:, 1:]


class WindowSampler:
    """Endless batches of windows at random places of some blocks. The n-th batch depends on the seed and n alone.

    Several processes share each batch: process `rank` of `processes` gets its part of the windows.
    """

    def __init__(
        self,
        text: CharacterText,
        blocks: Sequence[TextBlock],
        length: int,
        windows: int,
        seed: int,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.text, self.length, self.windows, self.seed = text, length, windows, seed
        self.share = slice(rank, None, processes)
        self.starts = window_starts(blocks, length + 1)
        self.position = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            chosen = np.random.default_rng([self.seed, self.position]).integers(len(self.starts), size=self.windows)
            self.position += 1
            yield self.text.windows(self.starts[chosen[self.share]], self.length)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
