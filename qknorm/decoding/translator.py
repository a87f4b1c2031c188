"""Translator: a trained run as a function from lines to lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from qknorm.data.subwords import Subwords
from qknorm.decoding.beam import BeamSettings, Hypothesis, beam_search
from qknorm.errors import InputError
from qknorm.models.translator import TranslatorModel
from qknorm.training.checkpoint import Checkpoints, load_model
from qknorm.training.run import Run

# Lines that are read before they are sorted by length and translated; bounds the memory of a stream.
_LINES_AT_ONCE = 1024
# Source pieces per batch, times beams.
_PIECES_PER_BATCH = 4096


class Translator:
    """Translates lines. N lines in are N lines out, in the same order, blank ones included."""

    def __init__(self, model: TranslatorModel, subwords: Subwords, settings: BeamSettings | None = None) -> None:
        self.model, self.subwords, self.settings = model, subwords, settings or BeamSettings()

    @classmethod
    def load(cls, folder: str | Path) -> Translator:
        """The best checkpoint of a run folder."""
        run = Run.open(Path(folder))
        model = run.make_model()
        checkpoint = Checkpoints(run.folder / "checkpoints").best()
        if checkpoint is None:
            raise InputError(f"{folder} has no checkpoint yet; go on with: qknorm train {folder} --resume")
        load_model(checkpoint, model)
        recipe = run.recipe.decoding
        settings = BeamSettings(recipe.beam_size, recipe.length_penalty, recipe.extra_length)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(model.to(device).eval(), run.subwords, settings)

    def with_beam_size(self, beam_size: int) -> Translator:
        return Translator(self.model, self.subwords, replace(self.settings, beam_size=beam_size))

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line."""
        return list(self.stream(lines))

    def stream(self, lines: Iterable[str]) -> Iterator[str]:
        """Translations one after the other, in bounded memory."""
        remaining = iter(lines)
        while chunk := list(islice(remaining, _LINES_AT_ONCE)):
            for hypotheses in self.hypotheses(chunk):
                yield self.subwords.decode(hypotheses[0].pieces) if hypotheses else ""

    def hypotheses(self, lines: Sequence[str]) -> list[list[Hypothesis]]:
        """The n best of each line, best first; none for a blank line."""
        encoded = self.subwords.encode(lines)
        found: list[list[Hypothesis]] = [[] for _ in lines]
        rows = sorted((row for row, line in enumerate(lines) if line.strip()), key=lambda row: len(encoded[row]))
        for batch in _batches(rows, encoded, _PIECES_PER_BATCH // self.settings.beam_size):
            results = beam_search(self.model, [encoded[row] for row in batch], self.settings)
            for row, result in zip(batch, results, strict=True):
                found[row] = result
        return found


def _batches(rows: Sequence[int], encoded: Sequence[Sequence[int]], budget: int) -> Iterator[list[int]]:
    """Rows, sorted by length, in batches whose padded size is within the budget."""
    batch: list[int] = []
    for row in rows:
        if batch and (len(batch) + 1) * (len(encoded[row]) + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
