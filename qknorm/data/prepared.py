"""A corpus made ready for training once: cleaned, split, its vocabulary learned, encoded, and kept under a key.

The folder of a prepared corpus:

    corpus.json  dropped.tsv  tokenizer.json  SET.source  SET.target  SET.safetensors, of each SET: train, dev, test

train.safetensors has the lines of the training text that are learned from, too. Further language pairs lie in pair-2
and so on; text that is borrowed, of which there is only a train set, after them.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, compress, tee
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from qknorm.attention.scale import percentile_length
from qknorm.data.batches import Encoded, FixedPairs
from qknorm.data.cleaning import (
    HELD_OUT,
    NO_TRANSLATION,
    CleaningReport,
    Rules,
    clean,
    dropped_row,
    refuse_if_nothing_is_left,
    written,
)
from qknorm.data.conventions import Convention
from qknorm.data.corpus_report import CorpusReport, DirectionReport
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.leaks import LEAKS, HeldOut
from qknorm.data.pipeline import TextPipeline
from qknorm.data.splits import SPLITS, split
from qknorm.data.subwords import EOS, UNK, Scheme, Subwords
from qknorm.data.textfiles import open_bytes, read_lines, write_lines
from qknorm.errors import InputError

CORPUS, TOKENIZER, DROPPED = "corpus.json", "tokenizer.json", "dropped.tsv"
"""Files of a prepared corpus that are copied into run folders."""

_FORMAT = 4  # of the folder; another number makes all corpora anew
_KEY_FORMAT = 3  # of the key: another number, and no run goes on that was begun before

# Learning a vocabulary from several corpora, each counts by (its number of sentences) to this power.
_TEXT_SMOOTHING = 0.5
_SIDES = ("source", "target")

Files = tuple[Path, Path]
Merges = int | Callable[[int], int]
"""How many, or how many for a text of so many words on both sides together."""
Judge = Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]]
"""How suspect each pair of two texts is, by `max_suspicion` of the rules."""


@dataclass(frozen=True)
class ParallelFiles:
    """Where the sentences of one language pair lie. A set that is not given is split off the others' text."""

    source: Path
    target: Path
    dev: Files | None = None
    test: Files | None = None
    languages: tuple[str, str] = ("src", "tgt")
    noted: tuple[Path, ...] = ()
    """What an earlier version kept beside them: a part of the key."""
    is_borrowed: bool = False
    """Whether it is learned from and nothing else: no set of it is held out."""
    is_word_list: bool = False
    """Whether it holds words, not sentences: names among them are their own translations."""
    is_opposite: bool = False
    """Whether it is another text turned round: nothing was read for it."""

    @property
    def name(self) -> str:
        return "-".join(self.languages)

    @property
    def given(self) -> dict[str, Files]:
        """The sets that are not split off."""
        return {name: files for name, files in (("dev", self.dev), ("test", self.test)) if files}

    def is_reverse_of(self, other: ParallelFiles) -> bool:
        return self.languages == other.languages[::-1]

    def turned(self, languages: tuple[str, str]) -> ParallelFiles:
        """The same files from target to source."""
        dev, test = (files and files[::-1] for files in (self.dev, self.test))
        turned = replace(self, source=self.target, target=self.source, dev=dev, test=test, languages=languages)
        return replace(turned, is_opposite=True)


@dataclass(frozen=True)
class PreparedSet:
    """Sentences, and their pieces.

    The text of dev and test is as people read it; all else has signs for what is kept.
    """

    sources: list[str]
    targets: list[str]
    encoded: FixedPairs

    def __len__(self) -> int:
        return len(self.sources)

    def turned(self) -> PreparedSet:
        return PreparedSet(self.targets, self.sources, FixedPairs(self.encoded.target, self.encoded.source))


@dataclass(frozen=True)
class PreparedDirection:
    """One language pair, ready for batches."""

    files: ParallelFiles
    train: PreparedSet
    dev: PreparedSet
    test: PreparedSet
    report: DirectionReport
    folder: Path
    """Where its dropped.tsv lies."""

    @property
    def held_out(self) -> dict[str, PreparedSet]:
        return {"dev": self.dev, "test": self.test}

    def turned(self, languages: tuple[str, str]) -> PreparedDirection:
        """The opposite direction: the same pairs in the same sets, so that neither learns what the other holds out."""
        train, dev, test = (pairs.turned() for pairs in (self.train, self.dev, self.test))
        report = self.report.model_copy(update={"longest_source": int(train.encoded.source.lengths.max())})
        return replace(self, files=self.files.turned(languages), train=train, dev=dev, test=test, report=report)


@dataclass(frozen=True)
class Prepared:
    """One vocabulary, and the directions that share it."""

    subwords: Subwords
    directions: list[PreparedDirection]
    """Those that are translated and scored."""
    folder: Path
    key: str = ""
    """Of all that decides what is learned: a run goes on with the same."""
    merges: int = 0
    borrowed: Sequence[PreparedDirection] = ()
    """Text that is learned from beside them."""

    @property
    def texts(self) -> list[PreparedDirection]:
        """All that is learned from: one's own pairs first."""
        return [*self.directions, *self.borrowed]

    @property
    def as_read(self) -> list[PreparedDirection]:
        """Those that were read: a text that is learned both ways only once."""
        return [text for text in self.texts if not text.files.is_opposite]

    @property
    def report(self) -> CorpusReport:
        """What corpus.json of a run says."""
        own, borrowed = ([text.report for text in texts] for texts in (self.directions, self.borrowed))
        return CorpusReport.of_file(self.folder / CORPUS).model_copy(update={"pairs": own, "borrowed": borrowed})

    def code(self, direction: PreparedDirection) -> str:
        """What the files of a text have in their names: of one's own pairs nothing, unless there are several."""
        if direction.files.is_borrowed:
            return f"extra-{next(row for row, text in enumerate(self.borrowed, 1) if text is direction)}"
        return direction.files.name if len(self.directions) > 1 else ""

    def target_pieces(self, bpe_dropout: bool = False, among: Sequence[int] | None = None) -> torch.Tensor:
        """(pieces,), True for those that occur in a target sentence, and for UNK and EOS: the mask of the logits.

        With BPE-dropout, True for all that may be drawn. `among`: only in the sentences of these directions, such as
        those with the same target language.
        """
        texts = self.texts
        sets = [texts[number].train for number in (range(len(texts)) if among is None else among)]
        if bpe_dropout:
            used = self.subwords.within(line for train in sets for line in train.targets)
        else:
            used = {int(number) for train in sets for number in np.unique(train.encoded.target.numbers)}
        mask = torch.zeros(len(self.subwords), dtype=torch.bool)
        mask[[UNK, EOS, *sorted(used)]] = True
        return mask

    def length(self, percentile: float = 97.5) -> float:
        """L of `henry_scale`: a percentile of the sequence lengths in pieces, source and target together."""
        pairs = [text.train.encoded for text in self.texts]
        lengths = [side.lengths for encoded in pairs for side in (encoded.source, encoded.target)]
        return percentile_length(np.concatenate(lengths).tolist(), percentile)


def prepare(
    directions: Sequence[ParallelFiles],
    merges: Merges,
    scheme: Scheme,
    rules: Rules,
    cache: Path,
    pipeline: TextPipeline | None = None,
    vocabulary: Path | None = None,
    judge: Judge | None = None,
) -> Prepared:
    """Clean, split, learn the joint vocabulary, encode; or find what the same files and settings gave before.

    vocabulary: the file of one that is taken in place of learning it, and extended by the characters that it lacks.
    judge: who says how suspect pairs are; without one, none is.
    """
    pipeline = pipeline or TextPipeline()
    contents = [_contents(files, directions) for files in directions]
    if not isinstance(merges, int):
        merges = merges(sum(side.words for source, target, *_ in contents for side in (source, target) if side))
    borrowed = ["words" if files.is_word_list else "borrowed" for files in directions if files.is_borrowed]
    taken = [] if vocabulary is None else [_content(vocabulary).digest]
    key = _key(contents, merges, scheme, rules, *pipeline.key, *borrowed, *taken)
    folder = cache / "prepared" / f"{key}-{_FORMAT}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # several processes of one training run come here together
        if not folder.exists():
            _make(folder, directions, merges, scheme, rules, pipeline, vocabulary, judge)
    loaded, own = _load(folder, directions), len(directions) - len(borrowed)
    return Prepared(Subwords.load(folder / TOKENIZER), loaded[:own], folder, key, merges, loaded[own:])


class _Digested(NamedTuple):
    """What is to be known of a file before it is taken apart."""

    digest: str
    words: int


def _contents(files: ParallelFiles, directions: Sequence[ParallelFiles]) -> list[_Digested | None]:
    """Of the files that decide what is learned from; None for a set that has none."""
    paths: list[Path | None] = [files.source, files.target]
    for name in SPLITS[1:]:
        paths += files.given.get(name, (None,))
    for other in directions:
        if other.is_reverse_of(files):
            paths += [path for held_out in other.given.values() for path in held_out[::-1]]
    return [None if path is None else _content(path) for path in (*paths, *files.noted)]


def _content(path: Path) -> _Digested:
    digest, words = hashlib.sha256(), 0
    with open_bytes(path) as file:
        for line in file:
            digest.update(line)
            words += len(line.split())
    return _Digested(digest.hexdigest(), words)


def _key(contents: Sequence[Sequence[_Digested | None]], merges: int, scheme: Scheme, rules: Rules, *steps: str) -> str:
    digests = [[content and content.digest for content in files] for files in contents]
    # There was a rule nfc once, and none called apart or max_suspicion.
    as_before = f"{repr(rules)[:-1]}, nfc=False)".replace(", apart=False", "").replace(", max_suspicion=None", "")
    settings = repr((merges, scheme, rules, *steps)).replace(repr(rules), as_before)
    return hashlib.sha256(f"({_KEY_FORMAT}, {digests!r}, {settings})".encode()).hexdigest()[:24]


def _make(
    folder: Path,
    directions: Sequence[ParallelFiles],
    merges: int,
    scheme: Scheme,
    rules: Rules,
    pipeline: TextPipeline,
    vocabulary: Path | None,
    judge: Judge | None,
) -> None:
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
    try:
        conventions = _conventions(directions)
        texts = [
            _Text(files, rules, pipeline, _place(scratch, row), conventions) for row, files in enumerate(directions)
        ]
        held_out = HeldOut(pair for text in texts for name in SPLITS[1:] for pair in text.sets[name])
        for text in texts:
            others = (other for other in texts if other.files.is_reverse_of(text.files))
            unwanted = {pair for other in others for pair in other.held_out_for_reverse()}
            text.drop(HELD_OUT, map(unwanted.__contains__, text.sets["train"]))
            if rules.apart or text.files.is_borrowed:
                text.drop(LEAKS, map(held_out.hold, text.sets["train"]))
            if judge is not None and rules.max_suspicion is not None and not text.files.is_word_list:
                text.drop(NO_TRANSLATION, judge(*_sides(text.sets["train"])) > rules.max_suspicion)
            text.near_copies = sum(map(held_out.resemble, text.sets["train"]))
            is_learned = not text.files.is_word_list
            text.sets["train"] = [Pair(*pipeline.together(*pair, is_learned)) for pair in text.sets["train"]]
        if vocabulary is None:
            subwords = Subwords.learn(_text_for_vocabulary([text.sets["train"] for text in texts]), merges, scheme)
            subwords.save(scratch / TOKENIZER)
        else:
            taken = Subwords.load(vocabulary)
            subwords = taken.extended(_text_for_vocabulary([text.sets["train"] for text in texts]), merges)
            if subwords is taken:
                shutil.copyfile(vocabulary, scratch / TOKENIZER)
            else:
                subwords.save(scratch / TOKENIZER)
        reports = [text.write(subwords, pipeline) for text in texts]
        own = sum(not files.is_borrowed for files in directions)
        about = CorpusReport(pieces=len(subwords), rules=asdict(rules), pairs=reports[:own], borrowed=reports[own:])
        about.write(scratch / CORPUS)
        scratch.chmod(0o755)
        scratch.replace(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _conventions(directions: Sequence[ParallelFiles]) -> dict[str, Convention]:
    """How one's own text of each language is written."""
    sides = [
        (files.languages[side], (files.source, files.target)[side])
        for files in directions
        if not files.is_borrowed
        for side in (0, 1)
    ]
    return {language: Convention.of(read_lines(path)) for language, path in sides}


def _in_conventions(
    pairs: Iterable[Pair], files: ParallelFiles, conventions: Mapping[str, Convention]
) -> Iterator[Pair]:
    """Borrowed pairs as one's own are written: a language that one has not as the other side of one's own."""
    usual = next(iter(conventions.values()))
    sides: list[Iterator[str]] = []
    for path, language, lines in zip((files.source, files.target), files.languages, _unzipped(pairs), strict=True):
        convention = conventions.get(language.partition("+")[0], usual)
        sides.append(convention.of_others(lines, Convention.of(read_lines(path)), language))
    return map(Pair, *sides)


def _unzipped(pairs: Iterable[Pair]) -> Iterator[Iterator[str]]:
    for side, copy in enumerate(tee(pairs)):
        yield map(itemgetter(side), copy)


def _place(folder: Path, number: int) -> Path:
    """The folder of a direction: that of the corpus itself for the first, a numbered one below it for others."""
    place = folder if number == 0 else folder / f"pair-{number + 1}"
    place.mkdir(exist_ok=True)
    return place


class _Text:
    """The sentences of one language pair on their way to a folder: cleaned, then split."""

    def __init__(
        self,
        files: ParallelFiles,
        rules: Rules,
        pipeline: TextPipeline,
        place: Path,
        conventions: Mapping[str, Convention],
    ) -> None:
        self.files, self.place, self.report = files, place, CleaningReport()
        given = {name: list(read_aligned(*two)) for name, two in files.given.items()}
        held_out = {name: _whole(pairs, files.given[name], pipeline) for name, pairs in given.items()}
        self.left_out = {name: len(pairs) - len(held_out[name]) for name, pairs in given.items()}
        pairs, numbers = [], []
        aligned, unwanted = read_aligned(files.source, files.target), chain.from_iterable(given.values())
        rules = replace(rules, copies=rules.copies and not files.is_word_list)
        if files.is_borrowed:
            aligned = _in_conventions(aligned, files, conventions)
        for pair in clean(aligned, rules, place / DROPPED, unwanted, self.report, pipeline):
            pairs.append(pair)
            numbers.append(self.report.read)
        refuse_if_nothing_is_left(self.report, files.source, files.target)
        missing = [name for name in SPLITS[1:] if name not in given and not files.is_borrowed]
        set_of = (
            split([pair.source for pair in pairs], len(missing), files.source) if missing else np.zeros(len(pairs), int)
        )
        self.numbers = np.array(numbers)[set_of == 0]
        self.sets: dict[str, list[Pair]] = {name: [] for name in SPLITS[1:]} | held_out
        self.sets |= {name: list(compress(pairs, set_of == number)) for number, name in enumerate(("train", *missing))}
        self.split_off = {name: len(self.sets[name]) for name in missing}
        self.near_copies = 0

    def held_out_for_reverse(self) -> Iterator[Pair]:
        """What a translator in the other direction must not learn either."""
        return (Pair(target, source) for name in SPLITS[1:] for source, target in self.sets[name])

    def drop(self, reason: str, is_unwanted: Iterable[bool]) -> None:
        """Learn nothing from such pairs: what all texts hold out, and the text as a whole, is known only now."""
        train = self.sets["train"]
        stays = ~np.fromiter(is_unwanted, bool, len(train))
        with (self.place / DROPPED).open("ab") as file:
            for row in np.flatnonzero(~stays):
                file.write(dropped_row(int(self.numbers[row]), reason, train[row]))
                self.report.dropped[reason] += 1
        self.sets["train"], self.numbers = list(compress(train, stays)), self.numbers[stays]
        self.report.kept = len(self.sets["train"])
        refuse_if_nothing_is_left(self.report, self.files.source, self.files.target)

    def write(self, subwords: Subwords, pipeline: TextPipeline) -> DirectionReport:
        """All sets with their pieces, and in which lines that to learn from stands; returns what corpus.json says."""
        longest = 0
        for name, pairs in self.sets.items():
            arrays: dict[str, NDArray[Any]] = {"lines": self.numbers} if name == "train" else {}
            read = pairs if name == "train" else [Pair(*pipeline.together(*pair)) for pair in pairs]
            for side, lines, as_read in zip(_SIDES, _sides(pairs), _sides(read), strict=True):
                encoded = Encoded.from_lists(subwords.encode(as_read))
                arrays |= {f"{side}.numbers": encoded.numbers, f"{side}.offsets": encoded.offsets}
                write_lines(self.place / f"{name}.{side}", lines)
                longest = int(encoded.lengths.max()) if (name, side) == ("train", "source") else longest
            _save(arrays, self.place / f"{name}.safetensors")
        return DirectionReport(
            read=self.report.read,
            kept=self.report.kept,
            words=sum(len(side.split()) for pair in self.sets["train"] for side in pair),
            dropped=dict(self.report.dropped),
            split_off=self.split_off,
            left_out=self.left_out,
            near_copies=self.near_copies,
            out_of_step=self.report.out_of_step,
            longest_source=longest,
        )


def _sides(pairs: Sequence[Pair]) -> tuple[Sequence[str], Sequence[str]]:
    return ([pair.source for pair in pairs], [pair.target for pair in pairs])


def _whole(pairs: Sequence[Pair], files: Files, pipeline: TextPipeline) -> list[Pair]:
    """The pairs to score by, which have no blank side; an InputError if there are none."""
    whole = [pair for pair in (written(pair, pipeline) for pair in pairs) if all(map(str.strip, pair))]
    if not whole:
        raise InputError(f"{files[0]} and {files[1]} hold no pair of sentences to score a translator by")
    return whole


def _text_for_vocabulary(corpora: Sequence[Sequence[Pair]]) -> Iterator[str]:
    """Both sides of every corpus; a smaller corpus is repeated until it counts by its size to the power 0.5."""
    largest = max(map(len, corpora))
    for corpus in corpora:
        lines = round(largest * (len(corpus) / largest) ** _TEXT_SMOOTHING)
        for row in range(max(lines, len(corpus))):
            yield from corpus[row % len(corpus)]


def _save(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    try:
        save_file(arrays, path)
    except SafetensorError as error:
        raise InputError(f"{path} could not be written: {error}") from None


def _load(folder: Path, directions: Sequence[ParallelFiles]) -> list[PreparedDirection]:
    try:
        reports = CorpusReport.of_file(folder / CORPUS).texts
        loaded = []
        for number, (files, report) in enumerate(zip(directions, reports, strict=True)):
            place = _place(folder, number)
            train, dev, test = (_load_set(place, name) for name in SPLITS)
            loaded.append(PreparedDirection(files, train, dev, test, report, place))
    except (SafetensorError, OSError, ValueError, LookupError, InputError) as error:
        raise InputError(f"{folder} is damaged ({error}); delete the folder and start again") from None
    return loaded


def _load_set(place: Path, name: str) -> PreparedSet:
    arrays = load_file(place / f"{name}.safetensors")
    source, target = (Encoded(arrays[f"{side}.numbers"], arrays[f"{side}.offsets"]) for side in _SIDES)
    sources, targets = (list(read_lines(place / f"{name}.{side}")) for side in _SIDES)
    if not len(source) == len(target) == len(sources) == len(targets):
        raise ValueError(f"the files of {name} differ in length")
    return PreparedSet(sources, targets, FixedPairs(source, target))
