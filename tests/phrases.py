"""A small corpus in files, for tests that train."""

from __future__ import annotations

from pathlib import Path

from qknorm.data.phrasebook import pairs
from qknorm.data.textfiles import write_lines


def write_phrases(folder: Path, train: int, held_out: int) -> None:
    """train, dev and test in English and Galician."""
    phrases = pairs(train + 2 * held_out)
    splits = {"dev": phrases[:held_out], "test": phrases[held_out : 2 * held_out], "train": phrases[2 * held_out :]}
    for name, chosen in splits.items():
        for side, language in enumerate(("en", "gl")):
            write_lines(folder / f"{name}.{language}", (pair[side] for pair in chosen))
