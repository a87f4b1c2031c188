"""Translator: a trained run as a function from lines to lines."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from qknorm.data.subwords import BOS, EOS, Subwords
from qknorm.decoding.beam import BeamSettings, Hypothesis, beam_search
from qknorm.decoding.sampling import SamplingSettings, sample
from qknorm.decoding.splitting import join_parts, split_line
from qknorm.errors import InputError
from qknorm.evaluation.attention_maps import AttentionMaps, attention_maps
from qknorm.models.translator import TAUGHT_HEAD, TranslatorModel
from qknorm.runs.checkpoint import Checkpoints
from qknorm.runs.run import Run

LINES_AT_ONCE = 1024
"""Lines that are read before they are sorted by length and translated; with the next, bounds the memory of a stream."""
_CHARACTERS_AT_ONCE = 500_000
# Source pieces per batch, times beams.
_PIECES_PER_BATCH = 4096


@dataclass(frozen=True)
class Part:
    """What was translated as one sentence: its pieces without EOS, and one translation of it."""

    source: list[int]
    target: Hypothesis


@dataclass(frozen=True)
class Translation:
    """One translation of a line. It has one part, more if the line was split, none if the line was blank."""

    text: str
    score: float
    """The sum of the scores of its parts; a score is a log-probability over the length penalty."""
    parts: list[Part]


@dataclass(frozen=True)
class Explanation:
    """How a translation came about. Both lists of pieces end with EOS."""

    source_pieces: list[str]
    target_pieces: list[str]
    piece_scores: list[float]
    """The log-probability of each target piece."""
    attention: AttentionMaps


class Translator:
    """Translates lines. N lines in are N lines out, in the same order, blank ones included.

    longest: source pieces of the longest sentence that the model was trained on; a longer line is split.
    sampling: draw translations at random instead of searching for the best; `settings` then give the lengths alone.
    pair: the number of the language pair, where the model translates several.
    taught: whether a head of attention was taught where words are translated from; `alignment` asks it.
    """

    def __init__(
        self,
        model: TranslatorModel,
        subwords: Subwords,
        settings: BeamSettings | None = None,
        longest: int | None = None,
        sampling: SamplingSettings | None = None,
        pair: int = 0,
        taught: bool = False,
    ) -> None:
        self.model, self.subwords, self.longest, self.pair, self.taught = model, subwords, longest, pair, taught
        self.settings, self.sampling = settings or BeamSettings(), sampling

    @classmethod
    def load(cls, folder: str | Path, pair: str | None = None) -> Translator:
        """The best checkpoint of a run folder; `pair`, such as "en-gl", if it translates several."""
        run = Run.open(Path(folder))
        number = run.pair_number(pair)
        model = run.make_model()
        if not Checkpoints(run.folder / "checkpoints").load_best(model):
            raise InputError(f"{folder} has no whole checkpoint; go on with: qknorm train {folder} --resume")
        recipe = run.recipe
        decoding = recipe.decoding
        settings = BeamSettings(decoding.beam_size, decoding.length_penalty, decoding.extra_length)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        longest, taught = run.longest_source(number), recipe.training.taught > 0
        return cls(model.to(device).eval(), run.subwords, settings, longest, pair=number, taught=taught)

    def with_settings(self, settings: BeamSettings, sampling: SamplingSettings | None = None) -> Translator:
        """The same model, searched in another way."""
        other = copy.copy(self)
        other.settings, other.sampling = settings, sampling
        return other

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; for a single one: translate([line])[0]")
        return list(self.stream(lines))

    def stream(self, lines: Iterable[str], lines_at_once: int = LINES_AT_ONCE) -> Iterator[str]:
        """Translations one after the other, in bounded memory."""
        for best, *_ in self.translations(lines, lines_at_once=lines_at_once):
            yield best.text

    def translations(
        self, lines: Iterable[str], n_best: int = 1, lines_at_once: int = LINES_AT_ONCE
    ) -> Iterator[list[Translation]]:
        """Of each line the n best translations, best first, or n samples; of a blank line the empty one.

        The n-th translation of a line that was split joins the n-th ones of its parts.
        """
        first = 1
        for chunk in _chunks(lines, lines_at_once):
            parts = [self._parts(line, first + row) for row, line in enumerate(chunk)]
            keys = [f"{first + row} {part}" for row, line in enumerate(parts) for part in range(len(line))]
            found = iter(self._search([part for line in parts for part in line], keys, n_best))
            for line in parts:
                yield self._joined([(source, next(found)) for source in line], n_best)
            first += len(chunk)

    def explain(self, line: str, translation: str | None = None) -> Explanation:
        """The pieces, their log-probabilities and all attention weights, of the best translation or of a given one."""
        parts = self._parts(line, 1)
        if len(parts) != 1:
            what = "there is nothing to explain in a blank line" if not parts else f"the line has {len(parts)} parts"
            raise InputError(f"{what}; explain one sentence at a time")
        (source,) = parts
        if translation is None:
            ((best, *_),) = self._search([source], ["1 0"], 1)
        else:
            (pieces,) = self.subwords.encode([translation])
            best = Hypothesis(pieces, 0.0, self._piece_scores(source, pieces))
        return self.explain_part(Part(source, best))

    def explain_part(self, part: Part) -> Explanation:
        """The same for a part of a translation that was made before."""
        maps = attention_maps(self.model, part.source, part.target.pieces, self.pair)
        return Explanation(self.spelled(part.source), self.spelled(part.target.pieces), part.target.piece_scores, maps)

    def alignment(self, translation: Translation) -> list[tuple[int, int]]:
        """Which word of the source (counted from 0, as spaces separate them) each word of a translation comes from.

        A word for which the taught head looks at no word in particular but at the end of the sentence is left out.
        """
        if not self.taught:
            raise InputError("this model was not taught word alignments; a run of `qknorm train --minutes` is")
        links, read, said = [], 0, 0
        for part in translation.parts:
            source, target = (self.subwords.word_numbers(side) for side in (part.source, part.target.pieces))
            weights = attention_maps(self.model, part.source, part.target.pieces, self.pair).cross[-1, TAUGHT_HEAD]
            links += [(read + one, said + other) for one, other in word_links(weights, source, target)]
            read, said = read + max(source, default=-1) + 1, said + max(target, default=-1) + 1
        return links

    def spelled(self, pieces: Sequence[int]) -> list[str]:
        """Pieces as they stand in the vocabulary, and EOS."""
        return [self.subwords.pieces[number] for number in (*pieces, EOS)]

    def _parts(self, line: str, number: int) -> list[list[int]]:
        """The pieces of a line; of its sentences where they are too many; none of a blank line."""
        if not line.strip():
            return []
        (whole,) = self.subwords.encode([line])
        longest = self.longest
        if longest is None or len(whole) <= longest:
            return [whole]
        parts, at_sentence_ends = split_line(line, lambda text: len(self.subwords.encode([text])[0]) <= longest)
        if not at_sentence_ends:
            warnings.warn(
                f"line {number} has a sentence of more than {longest} pieces, the longest in training; it was cut into "
                "parts that were translated one by one",
                stacklevel=2,
            )
        return self.subwords.encode(parts)

    def _search(self, sources: Sequence[list[int]], keys: Sequence[str], n_best: int) -> list[list[Hypothesis]]:
        """The n best of each sentence, or n samples; a sentence's key is what its samples depend on."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        rows = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        side_by_side = self.settings.beam_size if self.sampling is None else n_best
        for batch in _batches(rows, sources, _PIECES_PER_BATCH // side_by_side):
            if self.sampling is None:
                chosen = [sources[row] for row in batch]
                results = beam_search(self.model, chosen, self.settings, self.pair, n_best)
            else:
                wanted = [(row, number) for number in range(n_best) for row in batch]
                drawn = sample(
                    self.model,
                    [sources[row] for row, _ in wanted],
                    [f"{keys[row]} {number}" for row, number in wanted],
                    self.settings,
                    self.sampling,
                    self.pair,
                )
                results = [[one for (one,) in drawn[place :: len(batch)]] for place in range(len(batch))]
            for row, result in zip(batch, results, strict=True):
                found[row] = result[:n_best]
        return found

    def _joined(self, parts: Sequence[tuple[list[int], list[Hypothesis]]], n_best: int) -> list[Translation]:
        if not parts:
            return [Translation("", 0.0, [])]
        return [
            Translation(
                join_parts([self.subwords.decode(hypotheses[place].pieces) for _, hypotheses in parts]),
                sum(hypotheses[place].score for _, hypotheses in parts),
                [Part(source, hypotheses[place]) for source, hypotheses in parts],
            )
            for place in range(min(n_best, *(len(hypotheses) for _, hypotheses in parts)))
        ]

    @torch.inference_mode()
    def _piece_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """The log-probability of each piece of a given translation, EOS included."""
        device, said = self.model.languages.device, self.model.said(self.pair)
        state = self.model.start(torch.tensor([[*source, EOS]], device=device), self.pair)
        scores = []
        for last, wanted in zip([BOS, *target], [*target, EOS], strict=True):
            log_probabilities = torch.full((len(self.subwords),), -torch.inf, device=device)
            logits = self.model.step(torch.tensor([last], device=device), self.pair, state)[0]
            log_probabilities[said] = logits.log_softmax(-1)
            scores.append(float(log_probabilities[wanted]))
        return scores


def word_links(weights: torch.Tensor, source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int]]:
    """From weights (target pieces, source pieces, both with EOS) to pairs of words, given the word of each piece."""
    read, said = max(source, default=-1) + 1, max(target, default=-1) + 1
    by_source = torch.zeros(len(weights), read + 1).index_add_(1, torch.tensor([*source, read]), weights)
    by_word = torch.zeros(said + 1, read + 1).index_add_(0, torch.tensor([*target, said]), by_source)
    best = by_word[:said].argmax(1).tolist()
    return [(one, word) for word, one in enumerate(best) if one < read]


def _chunks(lines: Iterable[str], lines_at_once: int) -> Iterator[list[str]]:
    """So many lines at once, fewer if they are very long."""
    chunk: list[str] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        if len(chunk) == lines_at_once or characters >= _CHARACTERS_AT_ONCE:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


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
