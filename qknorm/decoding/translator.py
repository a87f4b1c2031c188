"""Translator: a trained run as a function from lines to lines."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from qknorm.data.pipeline import tidy
from qknorm.data.subwords import BOS, EOS, Subwords
from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.decoders import Beam, Decoder
from qknorm.decoding.splitting import join_parts, split_line
from qknorm.errors import InputError
from qknorm.evaluation.attention_maps import AttentionMaps, attention_maps
from qknorm.models.translator import TAUGHT_HEAD, TranslatorModel
from qknorm.processes import command_to_resume
from qknorm.runs.translator_run import TranslatorRun

LINES_AT_ONCE = 1024
"""Lines that are read before they are sorted by length and translated; with the next, bounds the memory of a stream."""
_CHARACTERS_AT_ONCE = 500_000
# Source pieces per batch, times beams.
_PIECES_PER_BATCH = 4096


@dataclass(frozen=True)
class Part:
    """A sentence translated as a unit: its pieces without EOS, and one translation of it."""

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

    longest: source pieces of the longest sentence in training; a longer line is split.
    direction: the index of the language pair, if the model translates several.
    taught: whether an attention head was taught the alignment, which `alignment` reads from it.
    tidied: whether the model learned from tidy text, and lines are to be made so.
    """

    def __init__(
        self,
        model: TranslatorModel,
        subwords: Subwords,
        settings: BeamSettings | None = None,
        longest: int | None = None,
        direction: int = 0,
        taught: bool = False,
        tidied: bool = False,
    ) -> None:
        self.model, self.subwords, self.longest, self.direction = model, subwords, longest, direction
        self.taught, self.tidied = taught, tidied
        self.settings = settings or BeamSettings()
        self.decoder: Decoder = Beam(self.settings)

    @classmethod
    def load(cls, folder: str | Path, pair: str | None = None) -> Translator:
        """Load the best checkpoint of a run folder; `pair`, such as "en-gl", if it translates several."""
        run = TranslatorRun.open(Path(folder))
        direction = run.direction_number(pair)
        model = run.make_model()
        if not run.checkpoints.load_best(model):
            raise InputError(f"{folder} has no whole checkpoint; go on with: {command_to_resume(run.folder)}")
        recipe = run.recipe
        decoding = recipe.decoding
        settings = BeamSettings(decoding.beam_size, decoding.length_penalty, decoding.extra_length)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        longest, taught = run.longest_source(direction), recipe.training.taught > 0
        return cls(
            model.to(device).eval(),
            run.subwords,
            settings,
            longest,
            direction=direction,
            taught=taught,
            tidied=recipe.data.tidy,
        )

    def with_decoder(self, decoder: Decoder) -> Translator:
        """Return the same model with another decoder."""
        other = copy.copy(self)
        other.decoder = decoder
        return other

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Return the best translation of each line."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; for a single one: translate([line])[0]")
        return list(self.stream(lines))

    def stream(self, lines: Iterable[str], lines_at_once: int = LINES_AT_ONCE) -> Iterator[str]:
        """Yield translations one by one, in bounded memory."""
        for best, *_ in self.translations(lines, lines_at_once=lines_at_once):
            yield best.text

    def translations(
        self, lines: Iterable[str], n_best: int = 1, lines_at_once: int = LINES_AT_ONCE
    ) -> Iterator[list[Translation]]:
        """Yield each line's n best translations, best first, or n samples; a blank line has one, which is empty.

        The n-th translation of a split line joins the n-th translations of its parts.
        """
        first = 1
        for chunk in _chunks(lines, lines_at_once):
            parts = [self._parts(line, first + row) for row, line in enumerate(chunk)]
            keys = [f"{first + row} {part}" for row, line in enumerate(parts) for part in range(len(line))]
            hypotheses = iter(self._search([part for line in parts for part in line], keys, n_best))
            for line in parts:
                yield self._joined([(source, next(hypotheses)) for source in line], n_best)
            first += len(chunk)

    def explain(self, line: str, translation: str | None = None) -> Explanation:
        """Return pieces, log-probabilities and all attention weights of the best translation or a given one."""
        parts = self._parts(line, 1)
        if len(parts) != 1:
            what = "there is nothing to explain in a blank line" if not parts else f"the line has {len(parts)} parts"
            raise InputError(f"{what}; explain one sentence at a time")
        (source,) = parts
        if translation is None:
            ((best, *_),) = self._search([source], ["1 0"], 1)
        else:
            (pieces,) = self.subwords.encode([self._as_learned(translation)])
            best = Hypothesis(pieces, 0.0, self._piece_scores(source, pieces))
        return self.explain_part(Part(source, best))

    def explain_part(self, part: Part) -> Explanation:
        """Do the same for a part of an earlier translation."""
        maps = attention_maps(self.model, part.source, part.target.pieces, self.direction)
        return Explanation(self.spelled(part.source), self.spelled(part.target.pieces), part.target.piece_scores, maps)

    def alignment(self, translation: Translation) -> list[tuple[int, int]]:
        """Return which source word (split at spaces, counted from 0) each word of a translation comes from.

        A word for which the taught head looks at the end of the sentence instead of a word is left out.
        """
        if not self.taught:
            raise InputError("this model was not taught word alignments; a run of `qknorm train --minutes` is")
        links: dict[tuple[int, int], None] = {}  # without a space between them, two parts share a word
        sides = [[part.source for part in translation.parts], [part.target.pieces for part in translation.parts]]
        firsts = zip(*map(self._first_words, sides), strict=True)
        for part, (first_source, first_target) in zip(translation.parts, firsts, strict=True):
            source, target = (self.subwords.word_numbers(side) for side in (part.source, part.target.pieces))
            weights = attention_maps(self.model, part.source, part.target.pieces, self.direction).cross[-1, TAUGHT_HEAD]
            for source_word, target_word in word_links(weights, source, target):
                links[first_source + source_word, first_target + target_word] = None
        return list(links)

    def _first_words(self, parts: Sequence[Sequence[int]]) -> list[int]:
        """The number of each part's first word in the line that the parts are joined to."""
        texts = list(map(self.subwords.decode, parts))
        joined = (join_parts(texts[:end]) for end in range(1, len(texts) + 1))
        return [len(whole.split()) - len(text.split()) for whole, text in zip(joined, texts, strict=True)]

    def spelled(self, pieces: Sequence[int]) -> list[str]:
        """Return pieces as spelled in the vocabulary, and EOS."""
        return [self.subwords.pieces[number] for number in (*pieces, EOS)]

    def _parts(self, line: str, number: int) -> list[list[int]]:
        """The pieces of a line; of its sentences where they are too many; none of a blank line."""
        line = self._as_learned(line)
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

    def _as_learned(self, line: str) -> str:
        return tidy(line) if self.tidied else line

    def _search(self, sources: Sequence[list[int]], keys: Sequence[str], n_best: int) -> list[list[Hypothesis]]:
        """The n best of each sentence, or n samples; a key is what the random numbers of a sentence depend on."""
        hypotheses: list[list[Hypothesis]] = [[] for _ in sources]
        rows = sorted(range(len(sources)), key=lambda row: len(sources[row]))
        for batch in _batches(rows, sources, _PIECES_PER_BATCH // self.decoder.width(n_best)):
            chosen, own_keys = [sources[row] for row in batch], [keys[row] for row in batch]
            results = self.decoder.decode(self.model, chosen, own_keys, self.direction, n_best)
            for row, result in zip(batch, results, strict=True):
                hypotheses[row] = result[:n_best]
        return hypotheses

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
        device, vocabulary = self.model.languages.device, self.model.target_vocabulary(self.direction)
        state = self.model.start(torch.tensor([[*source, EOS]], device=device), self.direction)
        scores = []
        for last, piece in zip([BOS, *target], [*target, EOS], strict=True):
            log_probabilities = torch.full((len(self.subwords),), -torch.inf, device=device)
            logits = self.model.step(torch.tensor([last], device=device), self.direction, state)[0]
            log_probabilities[vocabulary] = logits.log_softmax(-1)
            scores.append(float(log_probabilities[piece]))
        return scores


def word_links(weights: torch.Tensor, source: Sequence[int], target: Sequence[int]) -> list[tuple[int, int]]:
    """From weights (target pieces, source pieces, both with EOS) to pairs of words, given the word of each piece."""
    sources, targets = _count(source), _count(target)
    by_source = torch.zeros(len(weights), sources + 1).index_add_(1, torch.tensor([*source, sources]), weights)
    by_word = torch.zeros(targets + 1, sources + 1).index_add_(0, torch.tensor([*target, targets]), by_source)
    best = by_word[:targets].argmax(1).tolist()
    return [(source_word, target_word) for target_word, source_word in enumerate(best) if source_word < sources]


def _count(word_numbers: Sequence[int]) -> int:
    return max(word_numbers, default=-1) + 1


def _chunks(lines: Iterable[str], lines_at_once: int) -> Iterator[list[str]]:
    """Chunks of at most this many lines, fewer if they are very long."""
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
