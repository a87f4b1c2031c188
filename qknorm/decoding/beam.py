"""Beam search in small steps, with the length penalty of GNMT (Wu et al. 2016).

The search keeps `beam_size` hypotheses per sentence. A finished one keeps its place in the beam and competes by its
final score, so the search of a sentence ends when no unfinished hypothesis is among its best. Sentences whose search
has ended leave the batch.

A translation does not depend on the other sentences of its batch. Padding is masked and limits are a sentence's own;
what remains is rounding, which differs with the shape of a batch and can turn a decision between two all but equal
hypotheses. A sentence with such a decision is therefore searched again alone, where the shapes are always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS
from qknorm.models.translator import DecodingState, TranslatorModel

# Two scores that are closer than this are a matter of rounding. In trained models the scores of one hypothesis differed
# by up to 5e-6 between batches of different shapes.
_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


@dataclass(frozen=True)
class BeamSettings:
    """How to search. The defaults are the first paper's."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """The exponent of ((5 + length) / 6); 0 prefers short translations, 1 long ones."""
    extra_length: int = 50
    """A translation has at most this many pieces more than its source."""
    min_length: int = 0
    max_length: int | None = None
    """At most so many pieces, whatever the source; the limit wins over `min_length`."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its pieces without EOS, its score, and the log-probability of each piece, EOS included."""

    pieces: list[int]
    score: float
    piece_scores: list[float]


def beam_search(
    model: TranslatorModel, sources: Sequence[Sequence[int]], settings: BeamSettings, pair: int = 0
) -> list[list[Hypothesis]]:
    """For each source sentence its hypotheses, best first. The model must be in eval mode."""
    return searched(lambda rows: Search(model, [sources[row] for row in rows], settings, pair), len(sources))


@torch.inference_mode()
def searched(search_for: Callable[[Sequence[int]], Search], sentences: int) -> list[list[Hypothesis]]:
    """Search all sentences together, and those where rounding may have decided again, each alone."""
    search = search_for(range(sentences))
    search.run()
    if sentences > 1:
        for row in search.close_calls:
            alone = search_for([row])
            alone.run()
            (search.results[row],) = alone.results
    return search.results


class Search:
    """The hypotheses of all sentences that are still searched: `rows` = sentences × beam_size, beams side by side."""

    def __init__(
        self, model: TranslatorModel, sources: Sequence[Sequence[int]], settings: BeamSettings, pair: int
    ) -> None:
        self.model, self.settings, self.pair = model, settings, pair
        self.device = model.languages.device
        dtype = torch.promote_types(model.languages.dtype, torch.float32)
        source = Batch.of(sources, [[] for _ in sources]).source.to(self.device)
        self.state: DecodingState = model.start(source, pair)
        self.said = model.said(pair)
        self.end = int((self.said == EOS).nonzero())
        self.active = torch.arange(len(sources), device=self.device)
        """Which sentence each group of beams belongs to."""
        most = math.inf if settings.max_length is None else settings.max_length
        limits = [min(len(pieces) + settings.extra_length, most) for pieces in sources]
        self.limits = torch.tensor(limits, device=self.device)
        rows = len(sources) * settings.beam_size
        self.last = torch.full((rows,), BOS, device=self.device)
        self.pieces = torch.empty(rows, 0, dtype=torch.long, device=self.device)
        self.piece_scores = torch.empty(rows, 0, dtype=dtype, device=self.device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=self.device)
        # Sums of many pieces, in double precision: their rounding must not be coarser than that of the pieces.
        self.totals = torch.zeros(rows, dtype=torch.double, device=self.device)
        self.finished = torch.zeros(rows, dtype=torch.bool, device=self.device)
        # All beams start alike, so only the first of each sentence may be extended.
        self.totals.view(-1, settings.beam_size)[:, 1:] = -math.inf
        self.tolerance = _TOLERANCE[dtype]
        self.is_close = torch.zeros(len(sources), dtype=torch.bool, device=self.device)
        """Whether a decision about the sentence was a matter of rounding."""
        self.close_calls: list[int] = []
        self.results: list[list[Hypothesis]] = [[] for _ in sources]

    def run(self) -> None:
        """Search until every sentence has its results."""
        while len(self.active):
            self.extend()
            self.collect_finished()

    def extend(self) -> None:
        """Say one more piece in every hypothesis."""
        log_probabilities = self.model.step(self.last, self.pair, self.state).to(self.piece_scores.dtype)
        self._forbid(log_probabilities)
        self._continue(*self.choose(log_probabilities), log_probabilities)

    def choose(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """The best of all continuations: (rows,) of which row each continues, and what it says, by its place in `said`.

        The best `beam_size` of a sentence are among the best `beam_size` of each of its beams; one more of each shows
        how close the decision was.
        """
        beams = self.settings.beam_size
        likeliest, said = log_probabilities.topk(min(beams + 1, len(self.said)))
        scores, said = self._scores_of_continuations(likeliest, said)
        candidates = scores.shape[1]
        best, places = scores.view(-1, beams * candidates).topk(min(beams + 1, beams * candidates))
        self.note_margins(best[:, beams - 1 : beams] - best[:, beams:])
        first = torch.arange(0, scores.numel(), beams * candidates, device=self.device)
        chosen = (first[:, None] + places[:, :beams]).flatten()
        return chosen // candidates, said.flatten()[chosen]

    def note_margins(self, margins: Tensor) -> None:
        """Remember the sentences of which a decision was a matter of rounding: margins is (sentences, decisions)."""
        self.is_close |= (margins < self.tolerance).any(1)

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

    def _scores_of_continuations(self, likeliest: Tensor, said: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and what they say, (rows, candidates each), as scores: total over length penalty.

        A finished hypothesis has one candidate, to stay as it is.
        """
        scores = (self.totals[:, None] + likeliest) / self._penalty(self.lengths + 1)[:, None]
        stay = self.totals / self._penalty(self.lengths)
        scores[:, 0] = torch.where(self.finished, stay, scores[:, 0])
        scores[:, 1:].masked_fill_(self.finished[:, None], -math.inf)
        return scores, said.masked_fill(self.finished[:, None], self.end)

    def _penalty(self, lengths: Tensor) -> Tensor:
        return ((5 + lengths.double()) / 6) ** self.settings.length_penalty

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
        if self.settings.beam_size > 1:
            self.state.reorder(origins)

    def collect_finished(self) -> None:
        """Take the sentences all of whose hypotheses are finished out of the batch."""
        beams = self.settings.beam_size
        done = self.finished.view(-1, beams).all(1)
        if not done.any():
            return
        scores, order = (self.totals / self._penalty(self.lengths)).view(-1, beams).sort(dim=1, descending=True)
        self.note_margins((scores[:, :-1] - scores[:, 1:]).masked_fill(~done[:, None], math.inf))
        for group in done.nonzero().flatten().tolist():
            sentence = int(self.active[group])
            rows = (order[group][scores[group] > -math.inf] + group * beams).tolist()
            self.results[sentence] = [self._hypothesis(row) for row in rows]
            if self.is_close[group]:
                self.close_calls.append(sentence)
        self._keep((~done).nonzero().flatten())

    def _keep(self, groups: Tensor) -> None:
        """Go on with these sentences only."""
        beams = self.settings.beam_size
        rows = (groups[:, None] * beams + torch.arange(beams, device=self.device)).flatten()
        self.active, self.limits, self.is_close = self.active[groups], self.limits[groups], self.is_close[groups]
        self.last, self.pieces, self.piece_scores = self.last[rows], self.pieces[rows], self.piece_scores[rows]
        self.lengths, self.totals, self.finished = self.lengths[rows], self.totals[rows], self.finished[rows]
        if len(rows):
            self.state.reorder(rows)
            self.state.keep_sentences(groups)

    def _hypothesis(self, row: int) -> Hypothesis:
        length = int(self.lengths[row])
        return Hypothesis(
            self.pieces[row, : length - 1].tolist(),
            float(self.totals[row] / self._penalty(self.lengths[row])),
            self.piece_scores[row, :length].tolist(),
        )
