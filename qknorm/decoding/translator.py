"""Translator: a trained run as a function from lines to lines."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from statistics import fmean

import torch

from qknorm.data.glossary import Glossary
from qknorm.data.pipeline import Mark, TextPipeline, kept_of
from qknorm.data.placeholders import Kept
from qknorm.data.subwords import BOS, EOS, Subwords
from qknorm.decoding.beam import LEAST, BeamSettings, Hypothesis
from qknorm.decoding.decoder import Decoder
from qknorm.decoding.decoders import Beam
from qknorm.decoding.repair import Links, repaired
from qknorm.decoding.sentence import Sentence
from qknorm.decoding.splitting import join_parts, split_line
from qknorm.errors import InputError
from qknorm.evaluation.attention_maps import AttentionMaps, attention_maps
from qknorm.models.ensemble import Ensemble, Stepwise
from qknorm.models.translator import TAUGHT_HEAD, Direction, TranslatorModel
from qknorm.ops.beam_search import Precision
from qknorm.processes import command_to_resume
from qknorm.runs.contents import Calibration
from qknorm.runs.translator_run import TranslatorRun, make_model

LINES_AT_ONCE = 1024
"""Lines that are read before they are sorted by length and translated; with the next, bounds the memory of a stream."""
_CHARACTERS_AT_ONCE = 500_000
_CUT = (
    "a sentence of more than {longest} pieces, the longest in training, was cut into parts that were translated one by "
    "one"
)
_REPAIRED = (
    "what is to be kept (placeholders, tags, links, terms) did not come through whole and was put back where it seems "
    "to belong: check it"
)
_NOT_KEPT = "what is to be kept (placeholders, tags, links, terms) is not in the translation as it is in the line"


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
    texts: list[str]
    """Of the sentences, as the model reads them."""
    marks: Sequence[Mark]
    n: int
    """How many translations are wanted."""
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> Kept | None:
        return kept_of(self.marks)


@dataclass(frozen=True)
class _Written:
    """What was made of a sentence, still with signs for what is kept."""

    hypothesis: Hypothesis
    text: str
    note: str | None = None


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
    others: models that translate together with it, whose directions have the same names. Attention is the first one's.
    calibrations: by the names of directions, what can be expected of translations.
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
        others: Sequence[TranslatorModel] = (),
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        self.model, self.subwords, self.taught = model, subwords, taught
        self._said_by: Stepwise = Ensemble([model, *others]) if others else model
        self.direction = direction or model.directions[0]
        self.pipeline = pipeline or TextPipeline()
        self._longest = {way.name: pieces for way, pieces in (longest or {}).items()}
        self._calibrations = calibrations or {}
        self.settings = settings or BeamSettings()
        self.decoder: Decoder = Beam(self.settings)

    @classmethod
    def load(cls, folder: str | Path, pair: str | None = None, precision: Precision = "float32") -> Translator:
        """Load the best checkpoint of a run folder; `pair`, such as "en-gl", if it translates several.

        precision: "int8" translates with products of bytes, on a CPU with a kernel for them; faster, and not the same.
        """
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
            BeamSettings(decoding.beam_size, decoding.length_penalty, decoding.extra_length, precision=precision),
            direction,
            {way: text.longest_source for way, text in zip(own, run.corpus.pairs, strict=False)},
            taught=recipe.training.taught > 0,
            pipeline=recipe.data.pipeline,
            calibrations=run.calibrations,
        )

    @classmethod
    def ensemble(cls, *folders: str | Path, pair: str | None = None, precision: Precision = "float32") -> Translator:
        """Load runs that translate together: the mean of their probabilities counts at each piece.

        They share vocabulary and text pipeline, as seeds of one recipe do. The first one's settings hold.
        """
        first, *others = (cls.load(folder, pair, precision) for folder in folders)
        for folder, other in zip(folders[1:], others, strict=True):
            if (doubt := first._unlike(other)) is not None:
                raise InputError(f"{folder} and {folders[0]} cannot translate together: {doubt}")
        if not others:
            return first
        longest = {way: first._longest_of_all(way, others) for way in first.directions}
        models, taught = [other.model for other in others], first.taught
        return cls(
            first.model, first.subwords, first.settings, first.direction, longest, taught, first.pipeline, models
        )

    def _unlike(self, other: Translator) -> str | None:
        """Why no ensemble has both, if there is a reason."""
        if not self.subwords.is_same_as(other.subwords):
            return "they have different vocabularies; train on the same files, with seed=2, or with --from"
        if self.direction.name != other.direction.name:
            return f"one translates {other.direction.name}, the other {self.direction.name}"
        if self.pipeline.key != other.pipeline.key:
            return "they read lines in different ways (data.tidy, data.keep)"
        return None

    def _longest_of_all(self, way: Direction, others: Iterable[Translator]) -> int | None:
        """What none of them would have to split, as far as that is known."""
        known = [translator._longest.get(way.name) for translator in (self, *others)]
        return min(filter(None, known), default=None)

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
        return tuple(self._said_by.directions)

    @property
    def longest(self) -> int | None:
        """Source pieces of the longest sentence in training, if that is known."""
        return self._longest.get(self.direction.name)

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

    def keeping(self, patterns: Sequence[str] = (), terms: Mapping[str, str] | Glossary | None = None) -> Translator:
        """Return the same model that copies what matches these regular expressions, too, and translates terms so."""
        if not self.pipeline.keeps:
            raise InputError(
                "this model learned without placeholders (data.keep), so it can neither keep what you name nor use "
                "terms; a run of `qknorm train --minutes` can"
            )
        other = copy.copy(self)
        glossary = terms if isinstance(terms, Glossary) or terms is None else Glossary(terms)
        other.pipeline = self.pipeline.keeping(patterns, glossary)
        return other

    def greedy(self) -> Translator:
        """Return the same model without a search: several times as fast, and a little worse."""
        return self.with_decoder(Beam(replace(self.settings, beam_size=1)))

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Return the best translation of each line. Scores, and notes on what somebody should know: `translations`."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; for a single one: translate([line])[0]")
        return [best.text for best, *_ in self.translations(lines)]

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
        read = self._read(line)
        sentences = read.sentences
        if len(sentences) != 1:
            parts = f"the line has {len(sentences)} parts"
            what = parts if sentences else "there is nothing to explain in a blank line"
            raise InputError(f"{what}; explain one sentence at a time")
        if translation is None:
            return self.explain_part(self._joined(read, self._search(sentences))[0].parts[0])
        source, given = sentences[0].pieces, self.pipeline.written(translation)
        (pieces,) = self.subwords.encode([read.kept.hidden(given, read.texts[0]) if read.kept else given])
        best = Hypothesis(pieces, 0.0, self._piece_scores(source, pieces))
        return self.explain_part(TranslatedPart(source, best))

    def explain_part(self, part: TranslatedPart) -> Explanation:
        """Do the same for a part of an earlier translation."""
        maps = self._maps(part)
        return Explanation(self.spelled(part.source), self.spelled(part.target.pieces), self.piece_scores(part), maps)

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
            for source_word, target_word in self._links(part):
                links[first_source + source_word, first_target + target_word] = None
        kept = kept_of(self.pipeline.before(translation.source)[1])
        return list(links) if kept is None else self._links_as_written(links, translation.parts, kept)

    def _links(self, part: TranslatedPart) -> Links:
        """The same within a part; none if nothing was taught."""
        if not self.taught:
            return []
        source, target = (self.subwords.word_numbers(side) for side in (part.source, part.target.pieces))
        return word_links(self._maps(part).cross[-1, TAUGHT_HEAD], source, target)

    def _links_as_written(
        self, links: Iterable[tuple[int, int]], parts: Sequence[TranslatedPart], kept: Kept
    ) -> list[tuple[int, int]]:
        """With all words of what a sign stands for."""
        read = join_parts([self.subwords.decode(part.source) for part in parts])
        made = join_parts([self.subwords.decode(part.target.pieces) for part in parts])
        sources, targets = (_words_written(text, kept) for text in (read, made))
        return [
            (one, other)
            for source, target in links
            if source < len(sources) and target < len(targets)
            for one in sources[source]
            for other in targets[target]
        ]

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
        texts, is_cut, longest = [text] if text.strip() else [], False, self.longest
        parts = [whole] if texts else []
        if longest is not None and len(whole) > longest:
            texts, at_sentence_ends = split_line(text, lambda text: len(self.subwords.encode([text])[0]) <= longest)
            parts, is_cut = self.subwords.encode(texts), not at_sentence_ends
        search = self.decoder.width(Sentence(whole, n)) if kept_of(marks) else n  # others may have what the best lacks
        sentences = [Sentence(part, max(search, n), f"{number} {place}") for place, part in enumerate(parts)]
        return _Line(line, sentences, texts, marks, n, (_CUT.format(longest=longest),) if is_cut else ())

    def _search(self, sentences: Sequence[Sentence]) -> list[list[Hypothesis]]:
        """What the decoder makes of each sentence."""
        return self.decoder.decode(self._said_by, sentences, self.direction)

    def _joined(self, line: _Line, hypotheses: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        """The n-th hypotheses of a line's sentences as its n-th translation."""
        sources = [sentence.pieces for sentence in line.sentences]
        written = [
            self._written(line, *of_sentence) for of_sentence in zip(sources, line.texts, hypotheses, strict=True)
        ]
        return [
            Translation(
                line.text,
                self.pipeline.after(join_parts([best.text for best in chosen]), line.marks),
                sum((best.hypothesis.score for best in chosen), 0.0),
                [TranslatedPart(source, best.hypothesis) for source, best in zip(sources, chosen, strict=True)],
                tuple(dict.fromkeys((*line.notes, *(best.note for best in chosen if best.note)))),
            )
            for chosen in (zip(*written, strict=False) if written else [()])
        ]

    def _written(self, line: _Line, source: Sequence[int], reads: str, found: Sequence[Hypothesis]) -> list[_Written]:
        """As many hypotheses of a sentence as are wanted: first those that keep what is to be kept."""
        made, kept = [_Written(best, self.subwords.decode(best.pieces)) for best in found], line.kept
        if kept is None:
            return made
        fit = [best for best in made if kept.fits(reads, best.text)]
        others = [best for best in made if best not in fit]
        return [*fit, *(self._repaired(kept, source, reads, best) for best in others[: max(line.n - len(fit), 0)])][
            : line.n
        ]

    def _repaired(self, kept: Kept, source: Sequence[int], reads: str, made: _Written) -> _Written:
        """The same with all that is to be kept."""
        links = self._links(TranslatedPart(source, made.hypothesis))
        spelled = kept.without_others(kept.hidden(made.text, reads))
        text = repaired(reads, spelled, links, kept.is_ordered)
        (pieces,) = self.subwords.encode([text])
        note = _REPAIRED if kept.fits(reads, text) else _NOT_KEPT
        return _Written(replace(made.hypothesis, pieces=pieces, piece_scores=[]), text, note)

    def probability(self, translation: Translation) -> float:
        """Return the geometric mean of the probabilities of a translation's pieces; 1 for a blank line."""
        scores = [score for part in translation.parts for score in self.piece_scores(part)]
        return math.exp(fmean(scores)) if scores else 1.0

    def confidence(self, translation: Translation) -> float | None:
        """Return the chrF to expect of a translation, from 0 to 1, as dev lines of such a probability had it.

        None for an ensemble, and for runs whose confidence was not calibrated at their end.
        """
        calibration = self._calibrations.get(self.direction.name)
        return None if calibration is None else calibration.expected(self.probability(translation))

    def piece_scores(self, part: TranslatedPart) -> list[float]:
        """Return the log-probability of each piece of a part, `</s>` included."""
        known = part.target.piece_scores
        return known or [max(score, LEAST) for score in self._piece_scores(part.source, part.target.pieces)]

    @torch.inference_mode()
    def _piece_scores(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """The log-probability of each piece of a given translation, EOS included."""
        model, device = self._said_by, self.model.languages.device
        vocabulary = model.target_vocabulary(self.direction)
        state = model.start(torch.tensor([[*source, EOS]], device=device), self.direction)
        scores = []
        for last, piece in zip([BOS, *target], [*target, EOS], strict=True):
            log_probabilities = torch.full((len(self.subwords),), -torch.inf, device=device)
            logits = model.step(torch.tensor([last], device=device), state)[0]
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


def _words_written(text: str, kept: Kept) -> list[range]:
    """Of each word of a text with signs, which words it is in the text as people read it."""
    counts = [max(len(kept.restored(word).split()), 1) for word in text.split()]
    return [range(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]


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
