"""Translator: a trained run as a function from lines to lines."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from qknorm.data.pipeline import Mark, TextPipeline
from qknorm.data.subwords import BOS, EOS, Subwords
from qknorm.decoding.beam import BeamSettings, Hypothesis
from qknorm.decoding.decoder import Decoder
from qknorm.decoding.decoders import Beam
from qknorm.decoding.sentence import Sentence
from qknorm.decoding.splitting import join_parts, split_line
from qknorm.errors import InputError
from qknorm.evaluation.attention_maps import AttentionMaps, attention_maps
from qknorm.models.translator import TAUGHT_HEAD, Direction, TranslatorModel
from qknorm.processes import command_to_resume
from qknorm.runs.translator_run import TranslatorRun, make_model

LINES_AT_ONCE = 1024
"""Lines that are read before they are sorted by length and translated; with the next, bounds the memory of a stream."""
_CHARACTERS_AT_ONCE = 500_000
# Source pieces per batch, times beams.
_PIECES_PER_BATCH = 4096
_CUT = (
    "a sentence of more than {longest} pieces, the longest in training, was cut into parts that were translated one by "
    "one"
)


@dataclass(frozen=True)
class TranslatedPart:
    """A sentence translated as a unit: its pieces without EOS, and one translation of it."""

    source: Sequence[int]
    target: Hypothesis


@dataclass(frozen=True)
class Translation:
    """One translation of a line. It has one part, more if the line was split, none if the line was blank."""

    source: str
    """The line."""
    text: str
    score: float
    """The sum of the scores of its parts; a score is a log-probability over the length penalty."""
    parts: list[TranslatedPart]
    notes: tuple[str, ...] = ()
    """What somebody should know who relies on it, in a sentence each."""


@dataclass(frozen=True)
class _Line:
    """What a line is to a decoder, and what is needed to put its translation together."""

    text: str
    sentences: list[Sentence]
    marks: Sequence[Mark]
    notes: tuple[str, ...] = ()


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

    direction: which of the model's language pairs; the first unless it is given.
    longest: of each of them, the source pieces of its longest sentence in training; a longer line is split.
    taught: whether an attention head was taught the alignment, which `alignment` reads from it.
    pipeline: what was done to each line that the model learned from.
    """

    def __init__(
        self,
        model: TranslatorModel,
        subwords: Subwords,
        settings: BeamSettings | None = None,
        direction: Direction | None = None,
        longest: Mapping[Direction, int | None] | None = None,
        taught: bool = False,
        pipeline: TextPipeline | None = None,
    ) -> None:
        self.model, self.subwords, self.taught = model, subwords, taught
        self.direction = direction or model.directions[0]
        self.pipeline = pipeline or TextPipeline()
        self._longest = longest or {}
        self.settings = settings or BeamSettings()
        self.decoder: Decoder = Beam(self.settings)

    @classmethod
    def load(cls, folder: str | Path, pair: str | None = None) -> Translator:
        """Load the best checkpoint of a run folder; `pair`, such as "en-gl", if it translates several."""
        run = TranslatorRun.open(Path(folder))
        recipe, parts = run.recipe, run.parts
        subwords = run.vocabulary_of(parts)
        model = make_model(recipe, parts, len(subwords))
        codes = {(part.source, part.target) for part in parts.directions if not part.is_borrowed}
        own = [way for way in model.directions if (way.source, way.target) in codes]
        direction = _chosen(own if pair is None else model.directions, pair)
        if run.checkpoints.load_best(model) is None:
            raise InputError(f"{folder} has no whole checkpoint; go on with: {command_to_resume(run.folder)}")
        decoding = recipe.decoding
        return cls(
            model.to("cuda" if torch.cuda.is_available() else "cpu").eval(),
            subwords,
            BeamSettings(decoding.beam_size, decoding.length_penalty, decoding.extra_length),
            direction,
            {way: text.longest_source for way, text in zip(own, run.corpus.pairs, strict=False)},
            taught=recipe.training.taught > 0,
            pipeline=TextPipeline(recipe.data.steps),
        )

    @property
    def source(self) -> str:
        """The code of the language that is read."""
        return self.direction.source

    @property
    def target(self) -> str:
        """The code of the language that is written."""
        return self.direction.target

    @property
    def directions(self) -> tuple[Direction, ...]:
        """All that the model translates."""
        return self.model.directions

    @property
    def longest(self) -> int | None:
        """Source pieces of the longest sentence in training, if that is known."""
        return self._longest.get(self.direction)

    def with_direction(self, pair: str) -> Translator:
        """Return the same model for another of its language pairs, such as "gl-en"."""
        other = copy.copy(self)
        other.direction = _chosen(self.directions, pair)
        return other

    def with_decoder(self, decoder: Decoder) -> Translator:
        """Return the same model with another decoder."""
        other = copy.copy(self)
        other.decoder = decoder
        return other

    def greedy(self) -> Translator:
        """Return the same model without a search: several times as fast, and a little worse."""
        return self.with_decoder(Beam(BeamSettings(1, self.settings.length_penalty, self.settings.extra_length)))

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Return the best translation of each line. Scores, and notes on what somebody should know: `translations`."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; for a single one: translate([line])[0]")
        return [best.text for best, *_ in self.translations(lines)]

    def translate_pieces(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Return the best translation of each sentence, which is encoded already, as a model reads it."""
        read = [Sentence(list(pieces), 1, f"{number} 0") for number, pieces in enumerate(sentences, start=1)]
        return [self.subwords.decode(best.pieces) for best, *_ in self._search(read)]

    def translations(
        self, lines: Iterable[str], n_best: int = 1, lines_at_once: int = LINES_AT_ONCE
    ) -> Iterator[list[Translation]]:
        """Yield each line's n best translations, best first, or n samples, in bounded memory.

        A blank line has one, which is empty. The n-th translation of a split line joins the n-th of its parts.
        """
        first = 1
        for chunk in _chunks(lines, lines_at_once):
            read = [self._read(line, n_best, number) for number, line in enumerate(chunk, start=first)]
            hypotheses = iter(self._search([sentence for line in read for sentence in line.sentences]))
            for line in read:
                yield self._joined(line, list(islice(hypotheses, len(line.sentences))))
            first += len(chunk)

    def explain(self, line: str, translation: str | None = None) -> Explanation:
        """Return pieces, log-probabilities and all attention weights of the best translation or a given one."""
        sentences = self._read(line).sentences
        if len(sentences) != 1:
            parts = f"the line has {len(sentences)} parts"
            what = parts if sentences else "there is nothing to explain in a blank line"
            raise InputError(f"{what}; explain one sentence at a time")
        source = sentences[0].pieces
        if translation is None:
            ((best, *_),) = self._search(sentences)
        else:
            (pieces,) = self.subwords.encode([self.pipeline.before(translation)[0]])
            best = Hypothesis(pieces, 0.0, self._piece_scores(source, pieces))
        return self.explain_part(TranslatedPart(source, best))

    def explain_part(self, part: TranslatedPart) -> Explanation:
        """Do the same for a part of an earlier translation."""
        maps = self._maps(part)
        return Explanation(self.spelled(part.source), self.spelled(part.target.pieces), part.target.piece_scores, maps)

    def alignment(self, translation: Translation) -> list[tuple[int, int]]:
        """Return which source word (split at spaces, counted from 0) each word of a translation comes from.

        A word for which the taught head looks at the end of the sentence instead of a word is left out.
        """
        if not self.taught:
            raise InputError("this model was not taught word alignments; a run of `qknorm train --minutes` is")
        links: dict[tuple[int, int], None] = {}  # without a space between them, two parts share a word
        sources = self._first_words([part.source for part in translation.parts])
        targets = self._first_words([part.target.pieces for part in translation.parts])
        for part, first_source, first_target in zip(translation.parts, sources, targets, strict=True):
            source, target = (self.subwords.word_numbers(side) for side in (part.source, part.target.pieces))
            weights = self._maps(part).cross[-1, TAUGHT_HEAD]
            for source_word, target_word in word_links(weights, source, target):
                links[first_source + source_word, first_target + target_word] = None
        return list(links)

    def _maps(self, part: TranslatedPart) -> AttentionMaps:
        return attention_maps(self.model, part.source, part.target.pieces, self.direction.number)

    def _first_words(self, parts: Sequence[Sequence[int]]) -> list[int]:
        """The number of each part's first word in the line that the parts are joined to."""
        texts = list(map(self.subwords.decode, parts))
        joined = (join_parts(texts[:end]) for end in range(1, len(texts) + 1))
        return [len(whole.split()) - len(text.split()) for whole, text in zip(joined, texts, strict=True)]

    def spelled(self, pieces: Sequence[int]) -> list[str]:
        """Return pieces as spelled in the vocabulary, and EOS."""
        return [self.subwords.pieces[number] for number in (*pieces, EOS)]

    def _read(self, line: str, n: int = 1, number: int = 1) -> _Line:
        """A line as one sentence; as several where it is too long; as none where it is blank."""
        text, marks = self.pipeline.before(line)
        (whole,) = self.subwords.encode([text])
        parts, is_cut, longest = [whole] if text.strip() else [], False, self.longest
        if longest is not None and len(whole) > longest:
            texts, at_sentence_ends = split_line(text, lambda text: len(self.subwords.encode([text])[0]) <= longest)
            parts, is_cut = self.subwords.encode(texts), not at_sentence_ends
        sentences = [Sentence(part, n, f"{number} {place}") for place, part in enumerate(parts)]
        return _Line(line, sentences, marks, (_CUT.format(longest=longest),) if is_cut else ())

    def _search(self, sentences: Sequence[Sentence]) -> list[list[Hypothesis]]:
        """What the decoder makes of each sentence; those of like length are translated together."""
        hypotheses: list[list[Hypothesis]] = [[] for _ in sentences]
        rows = sorted(range(len(sentences)), key=lambda row: len(sentences[row].pieces))
        for batch in self._batches(rows, sentences):
            results = self.decoder.decode(self.model, [sentences[row] for row in batch], self.direction)
            for row, result in zip(batch, results, strict=True):
                hypotheses[row] = result
        return hypotheses

    def _batches(self, rows: Sequence[int], sentences: Sequence[Sentence]) -> Iterator[list[int]]:
        """Rows, sorted by length, in batches whose padded size is bounded."""
        batch: list[int] = []
        width = 0
        for row in rows:
            width += self.decoder.width(sentences[row])
            if batch and width * (len(sentences[row].pieces) + 1) > _PIECES_PER_BATCH:
                yield batch
                batch, width = [], self.decoder.width(sentences[row])
            batch.append(row)
        if batch:
            yield batch

    def _joined(self, line: _Line, hypotheses: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        """The n-th hypotheses of a line's sentences as its n-th translation."""
        sources = [sentence.pieces for sentence in line.sentences]
        return [
            Translation(
                line.text,
                self.pipeline.after(join_parts([self.subwords.decode(best.pieces) for best in chosen]), line.marks),
                sum((best.score for best in chosen), 0.0),
                list(map(TranslatedPart, sources, chosen)),
                line.notes,
            )
            for chosen in (zip(*hypotheses, strict=False) if hypotheses else [()])
        ]

    @torch.inference_mode()
    def _piece_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """The log-probability of each piece of a given translation, EOS included."""
        device, vocabulary = self.model.languages.device, self.model.target_vocabulary(self.direction)
        state = self.model.start(torch.tensor([[*source, EOS]], device=device), self.direction)
        scores = []
        for last, piece in zip([BOS, *target], [*target, EOS], strict=True):
            log_probabilities = torch.full((len(self.subwords),), -torch.inf, device=device)
            logits = self.model.step(torch.tensor([last], device=device), state)[0]
            log_probabilities[vocabulary] = logits.log_softmax(-1)
            scores.append(float(log_probabilities[piece]))
        return scores


def _chosen(directions: Sequence[Direction], pair: str | None) -> Direction:
    """The direction of this name; without one, the only direction."""
    for direction in directions:
        if pair == direction.name or (pair is None and len(directions) == 1):
            return direction
    asked = "translates several language pairs" if pair is None else f"does not translate {pair}"
    raise InputError(f"this model {asked}; choose a pair: {', '.join(direction.name for direction in directions)}")


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
