"""Beam search in small steps, with the length penalty of GNMT (Wu et al. 2016).

The search keeps `beam_size` hypotheses per sentence. A finished one keeps its place in the beam and competes by its
final score. A log-probability only falls as a hypothesis grows, so it is known what each can still reach: the search of
a sentence ends when as many as are wanted are finished and no other can overtake them. Such sentences leave the batch.

A translation does not depend on the other sentences of its batch. Padding is masked and limits are a sentence's own;
what remains is rounding, which differs with the shape of a batch and can turn a decision between two all but equal
hypotheses. A sentence with such a decision is therefore searched again alone, where the shapes are always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qknorm.data.batches import Batch
from qknorm.data.subwords import BOS, EOS
from qknorm.decoding.engine import packed_model
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.ensemble import Growing, Stepwise
from qknorm.models.translator import Direction
from qknorm.ops import beam_search as engine
from qknorm.ops.beam_search import Precision

# Two scores that are closer than this are a matter of rounding. In trained models the scores of one hypothesis differed
# by up to 5e-6 between batches of different shapes.
_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}

# Source pieces per batch, times beams.
_PIECES_PER_BATCH = 4096
# That a thread of the operator works on.
_SENTENCES_TOGETHER = 32

# The log-probability of an end that was forbidden, or all but impossible, where a sentence must end.
LEAST = -1e4


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
    """A translation has at most this many pieces, whatever the source; the limit wins over `min_length`."""
    precision: Precision = "float32"
    """Of products. "int8" is faster where there is a kernel for the model; elsewhere products are of floats."""

    def limit_of(self, sentence: Sentence) -> int:
        """How many pieces its translation may have."""
        limit = len(sentence.pieces) + self.extra_length
        return limit if self.max_length is None else min(limit, self.max_length)


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its pieces without EOS, its score, and the log-probability of each piece, EOS included."""

    pieces: list[int]
    score: float
    piece_scores: list[float]


def beam_search(
    model: Stepwise, sentences: Sequence[Sentence], settings: BeamSettings, direction: Direction
) -> list[list[Hypothesis]]:
    """For each sentence the n best hypotheses of its beam, best first. The model must be in eval mode."""
    fast = _by_engine(model, sentences, settings, direction)
    left = [sentence for sentence, found in zip(sentences, fast, strict=True) if found is None]
    others = iter(searched(lambda chosen: Search(model, chosen, settings, direction), left, settings.beam_size))
    return [next(others) if found is None else found for found in fast]


def _by_engine(
    model: Stepwise, sentences: Sequence[Sentence], settings: BeamSettings, direction: Direction
) -> list[list[Hypothesis] | None]:
    """What one operator finds; None for sentences that are left to `Search`."""
    limits = [settings.limit_of(sentence) for sentence in sentences]
    positions = max((max(len(s.pieces), limit) + 1 for s, limit in zip(sentences, limits, strict=True)), default=1)
    packed = packed_model(model, direction, settings.precision, positions)
    if packed is None:
        return [None] * len(sentences)
    asked = (settings.beam_size, settings.min_length, settings.length_penalty)
    order = sorted(range(len(sentences)), key=lambda row: -len(sentences[row].pieces))  # threads end at the same time
    found = engine.beam_search(
        packed,
        [[*sentences[row].pieces, EOS] for row in order],
        [limits[row] for row in order],
        [min(sentences[row].n, settings.beam_size) for row in order],
        engine.Search(BOS, *asked, _SENTENCES_TOGETHER),
    )
    by_row = dict(zip(order, found, strict=True))
    return [_hypotheses(by_row[row]) for row in range(len(sentences))]


def _hypotheses(found: Sequence[engine.Found] | None) -> list[Hypothesis] | None:
    return None if found is None else [Hypothesis(*one) for one in found]


@torch.inference_mode()
def searched(
    search_for: Callable[[Sequence[Sentence]], Search], sentences: Sequence[Sentence], width: int
) -> list[list[Hypothesis]]:
    """Search those of like length together, `width` hypotheses each."""
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    for batch in _batches(sentences, width):
        found = _searched_together(search_for, [sentences[row] for row in batch])
        for row, hypotheses in zip(batch, found, strict=True):
            results[row] = hypotheses
    return results


def _batches(sentences: Sequence[Sentence], width: int) -> Iterator[list[int]]:
    """Rows, sorted by length, in batches whose padded size is bounded."""
    batch: list[int] = []
    for row in sorted(range(len(sentences)), key=lambda row: len(sentences[row].pieces)):
        if batch and (len(batch) + 1) * width * (len(sentences[row].pieces) + 1) > _PIECES_PER_BATCH:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _searched_together(
    search_for: Callable[[Sequence[Sentence]], Search], sentences: Sequence[Sentence]
) -> list[list[Hypothesis]]:
    """Search all sentences together, and those where rounding may have decided again, each alone."""
    search = search_for(sentences)
    search.run()
    if len(sentences) > 1:
        for row in search.close_calls:
            alone = search_for([sentences[row]])
            alone.run()
            (search.results[row],) = alone.results
    return search.results


class Search:
    """The hypotheses of all sentences that are still searched: `rows` = sentences × beam_size, beams side by side."""

    def __init__(
        self, model: Stepwise, sentences: Sequence[Sentence], settings: BeamSettings, direction: Direction
    ) -> None:
        self.model, self.settings = model, settings
        self.device = model.languages.device
        dtype = torch.promote_types(model.languages.dtype, torch.float32)
        source = Batch.of([sentence.pieces for sentence in sentences], [[] for _ in sentences]).source.to(self.device)
        self.state: Growing = model.start(source, direction, settings.beam_size)
        self.vocabulary = model.target_vocabulary(direction)
        self.end = int((self.vocabulary == EOS).nonzero())
        self.active = torch.arange(len(sentences), device=self.device)
        """Which sentence each group of beams belongs to."""
        self.limits = torch.tensor([*map(settings.limit_of, sentences)], device=self.device)
        self.wanted = torch.tensor([min(sentence.n, settings.beam_size) for sentence in sentences], device=self.device)
        rows = self.row_count = len(sentences) * settings.beam_size
        self.last = torch.full((rows,), BOS, device=self.device)
        self.pieces = torch.empty(rows, 0, dtype=torch.long, device=self.device)
        self.piece_scores = torch.empty(rows, 0, dtype=dtype, device=self.device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=self.device)
        # Sums of many pieces, in double precision: their rounding must not be coarser than that of the pieces.
        self.totals = torch.zeros(rows, dtype=torch.double, device=self.device)
        self.finished = torch.zeros(rows, dtype=torch.bool, device=self.device)
        self.growing = torch.arange(rows, device=self.device)
        """The rows that the model goes on with, in its order: the unfinished ones."""
        # All beams start alike, so only the first of each sentence may be extended.
        self.totals.view(-1, settings.beam_size)[:, 1:] = -math.inf
        self.tolerance = _TOLERANCE[dtype]
        self.is_close = torch.zeros(len(sentences), dtype=torch.bool, device=self.device)
        """Whether a decision about the sentence was a matter of rounding."""
        self.close_calls: list[int] = []
        self.results: list[list[Hypothesis]] = [[] for _ in sentences]

    def run(self) -> None:
        """Search until every sentence has its results."""
        while len(self.active):
            self.extend()
            self.collect_finished()

    def extend(self) -> None:
        """Add one more piece to every hypothesis."""
        if not len(self.growing):  # nothing compares with what is not a number, so no search of a sentence ever ends
            raise InputError("the model's output is not a number: its weights are broken, as by a run that diverged")
        logits = self.model.step(self.last[self.growing], self.state).to(self.piece_scores.dtype)
        self._continue(*self.choose(logits))

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best of all continuations, for each row: which row it continues, with which piece, how probable.

        logits: of the growing rows. A piece is its index in `vocabulary`, the probability a logarithm. The best
        `beam_size` of a sentence are among the best `beam_size` of each of its beams; one more of each shows how close
        the decision was, and one more is there for an end that is forbidden.
        """
        beams = self.settings.beam_size
        sums = logits.logsumexp(-1)
        best_of_growing, choices_of_growing = (logits - sums[:, None]).topk(min(beams + 2, len(self.vocabulary)))
        ending = self._of_all(logits[:, self.end] - sums, -math.inf)
        best, choices = self._of_all(best_of_growing, -math.inf), self._of_all(choices_of_growing, self.end)
        best, choices = self._allowed(best, choices, ending)
        scores, choices = self._scores_of_continuations(best, choices)
        candidates = scores.shape[1]
        highest, best_of_beams = scores.view(-1, beams * candidates).topk(min(beams + 1, beams * candidates))
        self.note_margins(highest[:, beams - 1 : beams] - highest[:, beams:])
        first = torch.arange(0, scores.numel(), beams * candidates, device=self.device)
        chosen = (first[:, None] + best_of_beams[:, :beams]).flatten()
        return chosen // candidates, choices.flatten()[chosen], best.flatten()[chosen]

    def _of_all(self, of_growing: Tensor, otherwise: float) -> Tensor:
        """What belongs to the growing rows, spread over all rows."""
        if len(of_growing) == len(self.last):
            return of_growing
        return of_growing.new_full((len(self.last), *of_growing.shape[1:]), otherwise).index_copy_(
            0, self.growing, of_growing
        )

    def must_end(self) -> Tensor | None:
        """(rows,): at its limit a sentence must end. None if no sentence is."""
        at_limit = self.limits <= self.pieces.shape[1]
        return at_limit.repeat_interleave(self.settings.beam_size) if at_limit.any() else None

    def must_not_end(self) -> bool:
        return self.pieces.shape[1] < self.settings.min_length

    def _allowed(self, likeliest: Tensor, choices: Tensor, ending: Tensor) -> tuple[Tensor, Tensor]:
        """The candidates with no end before the minimal length, and nothing else at the limit."""
        if self.must_not_end():
            likeliest = likeliest.masked_fill(choices == self.end, -math.inf)
        must_end = self.must_end()
        if must_end is not None:
            choices = choices.masked_fill(must_end[:, None], self.end)
            likeliest = likeliest.masked_fill(must_end[:, None], -math.inf)
            likeliest[:, 0] = torch.where(must_end, ending.clamp_min(LEAST), likeliest[:, 0])
        return likeliest, choices

    def note_margins(self, margins: Tensor) -> None:
        """Remember the sentences of which a decision was a matter of rounding: margins is (sentences, decisions)."""
        self.is_close |= (margins < self.tolerance).any(1)

    def _scores_of_continuations(self, likeliest: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and pieces, (rows, candidates) each, as scores: total over length penalty.

        A finished hypothesis has one candidate, to stay as it is.
        """
        scores = (self.totals[:, None] + likeliest) / self._penalty(self.lengths + 1)[:, None]
        stay = self.totals / self._penalty(self.lengths)
        scores[:, 0] = torch.where(self.finished, stay, scores[:, 0])
        scores[:, 1:].masked_fill_(self.finished[:, None], -math.inf)
        return scores, choices.masked_fill(self.finished[:, None], self.end)

    def _penalty(self, lengths: Tensor) -> Tensor:
        return ((5 + lengths.double()) / 6) ** self.settings.length_penalty

    def _continue(self, origins: Tensor, choices: Tensor, log_probabilities: Tensor) -> None:
        """Let each row continue the row `origins` with the piece `choices`."""
        was_finished = self.finished[origins]
        piece_scores = log_probabilities.masked_fill(was_finished, 0.0)
        self.last = self.vocabulary[choices]
        self.pieces = torch.cat([self.pieces[origins], self.last[:, None]], 1)
        self.piece_scores = torch.cat([self.piece_scores[origins], piece_scores[:, None]], 1)
        self.totals = self.totals[origins] + piece_scores
        self.lengths = self.lengths[origins] + ~was_finished
        self.finished = was_finished | (choices == self.end)
        self._grow_on(origins)

    def _grow_on(self, origins: Tensor) -> None:
        """Tell the model which of its rows each growing row continues, given which row of the beams each row does."""
        row_of_model = torch.empty(self.row_count, dtype=torch.long, device=self.device)
        row_of_model[self.growing] = torch.arange(len(self.growing), device=self.device)
        rows = torch.arange(len(origins), device=self.device)
        self.growing = rows[~self.finished]
        self.row_count = len(origins)
        if len(self.growing):
            self.state.reorder(row_of_model[origins[self.growing]], self.growing // self.settings.beam_size)

    def collect_finished(self) -> None:
        """Take the sentences whose best hypotheses are certain out of the batch."""
        beams = self.settings.beam_size
        scores = (self.totals / self._penalty(self.lengths)).masked_fill(~self.finished, -math.inf)
        scores, order = scores.view(-1, beams).sort(dim=1, descending=True)
        done = scores.gather(1, self.wanted[:, None] - 1).squeeze(1) >= self._reachable()
        if not done.any():
            return
        compared = done[:, None] & (torch.arange(beams - 1, device=self.device) < self.wanted[:, None])
        self.note_margins((scores[:, :-1] - scores[:, 1:]).masked_fill(~compared, math.inf))
        for group in done.nonzero().flatten().tolist():
            sentence = int(self.active[group])
            rows = (order[group][scores[group] > -math.inf] + group * beams).tolist()
            self.results[sentence] = [self._hypothesis(row) for row in rows[: int(self.wanted[group])]]
            if self.is_close[group]:
                self.close_calls.append(sentence)
        self._keep((~done).nonzero().flatten())

    def _reachable(self) -> Tensor:
        """(sentences,): the best score that an unfinished hypothesis could end with, −∞ if there is none."""
        beams = self.settings.beam_size
        longest = self._penalty(self.limits.repeat_interleave(beams) + 1)
        reachable = self.totals / torch.maximum(longest, self._penalty(self.lengths + 1))
        return reachable.masked_fill(self.finished, -math.inf).view(-1, beams).amax(1)

    def _keep(self, groups: Tensor) -> None:
        """Go on with these sentences only."""
        beams = self.settings.beam_size
        rows = (groups[:, None] * beams + torch.arange(beams, device=self.device)).flatten()
        self.active, self.limits, self.wanted = self.active[groups], self.limits[groups], self.wanted[groups]
        self.is_close = self.is_close[groups]
        self.last, self.pieces, self.piece_scores = self.last[rows], self.pieces[rows], self.piece_scores[rows]
        self.lengths, self.totals, self.finished = self.lengths[rows], self.totals[rows], self.finished[rows]
        self._grow_on(rows)
        if len(groups):
            self.state.keep_sentences(groups)

    def _hypothesis(self, row: int) -> Hypothesis:
        length = int(self.lengths[row])
        return Hypothesis(
            self.pieces[row, : length - 1].tolist(),
            float(self.totals[row] / self._penalty(self.lengths[row])),
            self.piece_scores[row, :length].tolist(),
        )
