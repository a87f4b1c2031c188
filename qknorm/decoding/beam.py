"""Beam search in small steps, with the length penalty of GNMT (Wu et al. 2016).

The search keeps `beam_size` hypotheses per sentence. A finished one keeps its place in the beam and competes by its
final score, so the search of a sentence ends when no unfinished hypothesis is among its best. Sentences whose search
has ended leave the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS
from qknorm.models.translator import DecodingState, TranslatorModel


@dataclass(frozen=True)
class BeamSettings:
    """How to search. The defaults are the first paper's."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """The exponent of ((5 + length) / 6); 0 prefers short translations, 1 long ones."""
    extra_length: int = 50
    """A translation has at most this many pieces more than its source."""
    min_length: int = 0


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its pieces without EOS, its score, and the log-probability of each piece, EOS included."""

    pieces: list[int]
    score: float
    piece_scores: list[float]


@torch.inference_mode()
def beam_search(
    model: TranslatorModel, sources: Sequence[Sequence[int]], settings: BeamSettings, pair: int = 0
) -> list[list[Hypothesis]]:
    """For each source sentence its hypotheses, best first. The model must be in eval mode."""
    search = _Search(model, sources, settings, pair)
    while len(search.active):
        search.extend()
        search.collect_finished()
    return search.results


class _Search:
    """The hypotheses of all sentences that are still searched: `rows` = sentences × beam_size, beams side by side."""

    def __init__(
        self, model: TranslatorModel, sources: Sequence[Sequence[int]], settings: BeamSettings, pair: int
    ) -> None:
        self.model, self.settings, self.pair = model, settings, pair
        device = model.languages.device
        source = Batch.of(sources, [[] for _ in sources]).source.to(device)
        self.state: DecodingState = model.start(source, pair)
        self.said = model.said(pair)
        self.end = int((self.said == EOS).nonzero())
        self.active = torch.arange(len(sources), device=device)
        """Which sentence each group of beams belongs to."""
        self.limits = torch.tensor([len(pieces) + settings.extra_length for pieces in sources], device=device)
        rows = len(sources) * settings.beam_size
        self.last = torch.full((rows,), BOS, device=device)
        self.pieces = torch.empty(rows, 0, dtype=torch.long, device=device)
        self.piece_scores = torch.empty(rows, 0, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.totals = torch.zeros(rows, device=device)
        self.finished = torch.zeros(rows, dtype=torch.bool, device=device)
        # All beams start alike, so only the first of each sentence may be extended.
        self.totals.view(-1, settings.beam_size)[:, 1:] = -math.inf
        self.results: list[list[Hypothesis]] = [[] for _ in sources]

    def extend(self) -> None:
        """Say one more piece in every hypothesis, and keep the best of all continuations."""
        log_probabilities = self.model.step(self.last, self.pair, self.state).float()
        self._forbid(log_probabilities)
        scores = self._scores_of_continuations(log_probabilities)
        best, places = scores.view(len(self.active), -1).topk(self.settings.beam_size)
        origins = places // len(self.said) + torch.arange(len(self.active), device=best.device)[:, None] * (
            self.settings.beam_size
        )
        self._continue(origins.flatten(), (places % len(self.said)).flatten(), log_probabilities)

    def _forbid(self, log_probabilities: Tensor) -> None:
        """No end before the minimal length; at its limit a sentence must end."""
        step = self.pieces.shape[1]
        if step < self.settings.min_length:
            log_probabilities[:, self.end] = -math.inf
        at_limit = (self.limits <= step).repeat_interleave(self.settings.beam_size)
        if at_limit.any():
            ending = log_probabilities[at_limit, self.end].clone()
            log_probabilities[at_limit] = -math.inf
            log_probabilities[at_limit, self.end] = ending.clamp_min(-1e4)  # also where the end was forbidden

    def _scores_of_continuations(self, log_probabilities: Tensor) -> Tensor:
        """(rows, pieces): by total log-probability over length penalty. A finished hypothesis only stays as it is."""
        totals = self.totals[:, None] + log_probabilities
        scores = totals / self._penalty(self.lengths + 1)[:, None]
        stay = self.totals / self._penalty(self.lengths)
        scores[self.finished] = -math.inf
        scores[self.finished, self.end] = stay[self.finished]
        return scores

    def _penalty(self, lengths: Tensor) -> Tensor:
        return ((5 + lengths) / 6) ** self.settings.length_penalty

    def _continue(self, origins: Tensor, said: Tensor, log_probabilities: Tensor) -> None:
        """Let each row continue the row `origins` with the piece `said`."""
        was_finished = self.finished[origins]
        piece_scores = torch.where(was_finished, 0.0, log_probabilities[origins, said])
        self.last = self.said[said]
        self.pieces = torch.cat([self.pieces[origins], self.last[:, None]], 1)
        self.piece_scores = torch.cat([self.piece_scores[origins], piece_scores[:, None]], 1)
        self.totals = self.totals[origins] + piece_scores
        self.lengths = self.lengths[origins] + ~was_finished
        self.finished = was_finished | (said == self.end)
        self.state.reorder(origins)

    def collect_finished(self) -> None:
        """Take the sentences all of whose hypotheses are finished out of the batch."""
        beams = self.settings.beam_size
        done = self.finished.view(-1, beams).all(1)
        if not done.any():
            return
        scores = (self.totals / self._penalty(self.lengths)).view(-1, beams)
        for group in done.nonzero().flatten().tolist():
            order = scores[group].argsort(descending=True, stable=True).tolist()
            self.results[int(self.active[group])] = [self._hypothesis(group * beams + beam) for beam in order]
        going_on = (~done).nonzero().flatten()
        rows = (going_on[:, None] * beams + torch.arange(beams, device=done.device)).flatten()
        self.active, self.limits = self.active[going_on], self.limits[going_on]
        self.last, self.pieces, self.piece_scores = self.last[rows], self.pieces[rows], self.piece_scores[rows]
        self.lengths, self.totals, self.finished = self.lengths[rows], self.totals[rows], self.finished[rows]
        if len(rows):
            self.state.reorder(rows)
            self.state.keep_sentences(going_on)

    def _hypothesis(self, row: int) -> Hypothesis:
        length = int(self.lengths[row])
        return Hypothesis(
            self.pieces[row, : length - 1].tolist(),
            float(self.totals[row] / self._penalty(self.lengths[row])),
            self.piece_scores[row, :length].tolist(),
        )
