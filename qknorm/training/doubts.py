"""What looks wrong with the text of a run, in one sentence each: training goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qknorm.data.cleaning import NO_TRANSLATION
from qknorm.data.prepared import Files, PreparedDirection
from qknorm.runs.recipe import DirectionRecipe

_MUCH_DROPPED = 0.2  # of the pairs that were read
_FEW_PAIRS = 50
_LINES_COUNTED = 20_000  # of the training text, spread over all of it
_MUCH_MORE = 2  # times as frequent: words that both languages have are not
_MOST = 4  # times as many words speak for the other language as for the own; in the right order it is the reverse
_ENOUGH_WORDS = 0.3  # of a side: a few names in a text that is otherwise unknown say nothing
_FEW_KNOWN = 0.4  # of the share that half of a text has of the other: another language has less, another genre more
_SAYS_SOMETHING = 0.2  # of the words of a text in its other half: without spaces between words there are none

_KEEPING = {
    "duplicate": "keep_duplicates=true",
    "source equals target": "keep_copies=true",
    "lengths too different": "max_ratio=null",
    NO_TRANSLATION: "max_suspicion=null",
}
"""The setting that keeps what is dropped for a reason."""


def doubts(recipe: DirectionRecipe, prepared: PreparedDirection, dropped: Path) -> Iterator[str]:
    """About the text of a language pair, of which `dropped` lists what is not learned from."""
    yield from of_any_text(prepared, dropped)
    given = {} if recipe.corpus is not None else prepared.files.given
    if given:
        yield from _shared(prepared)
    for name, files in given.items():
        pairs, left_out = len(prepared.held_out[name]), prepared.report.left_out[name]
        if left_out:
            yield f"{left_out} of {pairs + left_out} pairs of {files[0]} have a blank side: left out"
        if pairs < _FEW_PAIRS:
            yield f"the {name} set has {pairs} pairs, fewer than {_FEW_PAIRS}: its score depends much on chance"
    if given:
        yield from _in_other_languages(prepared, given)


def of_any_text(prepared: PreparedDirection, dropped: Path) -> Iterator[str]:
    """The same, of text that is borrowed, too."""
    for shift in prepared.report.out_of_step:
        yield f"{prepared.files.source} and {prepared.files.target}: {shift}"
    yield from _little_is_left(prepared, dropped)


def of_borrowed(text: PreparedDirection, own: PreparedDirection) -> Iterator[str]:
    """About text that is borrowed: in one language with one's own, it may be the other way round."""
    source, target = own.files.languages
    files = text.files.source, text.files.target
    for side, code, lines in zip((0, 1), text.files.languages, (text.train.sources, text.train.targets), strict=True):
        known = (own.train.sources, own.train.targets)
        if code in (source, target):
            is_target = code == target
            if is_in_other_language(lines, known[is_target], known[not is_target]):
                other = (target, source)[is_target]
                yield f"{files[side]} has mostly words of {other}: are the borrowed files swapped?"
            elif not text.files.is_word_list and is_in_unknown_language(lines, known[is_target]):
                yield f"{files[side]} has hardly a word of your text in {code}: is it in that language?"


def _little_is_left(prepared: PreparedDirection, dropped: Path) -> Iterator[str]:
    """Of the pairs that were read; what is split off is not lost."""
    report = prepared.report
    lost = sum(report.dropped.values())
    if lost > _MUCH_DROPPED * report.read:
        most = max(report.dropped, key=report.dropped.__getitem__)
        remedy = f"; {_KEEPING[most]} would keep them" if most in _KEEPING else ""
        yield (f"{lost:,} of {report.read:,} pairs were dropped ({dropped} lists them); most were: {most}{remedy}")


def _shared(prepared: PreparedDirection) -> Iterator[str]:
    dev, test = (list(zip(side.sources, side.targets, strict=True)) for side in (prepared.dev, prepared.test))
    known = set(dev)
    if shared := sum(pair in known for pair in test):
        yield (
            f"{shared:,} of {len(test):,} pairs of the test set are in the dev set, too: "
            "its score says less about new text"
        )


def _in_other_languages(prepared: PreparedDirection, given: Mapping[str, Files]) -> Iterator[str]:
    """Of each given set, the first side that is in the language of the other side of the training text."""
    texts = prepared.files.source, prepared.files.target
    known = [_words(lines) for lines in (prepared.train.sources, prepared.train.targets)]
    for name, files in given.items():
        for side, lines in enumerate((prepared.held_out[name].sources, prepared.held_out[name].targets)):
            if _are_of_other(_words(lines), known[side], known[1 - side]):
                yield f"{files[side]} has mostly words of {texts[1 - side]}: are the files of the {name} set swapped?"
                break


def is_in_other_language(lines: Sequence[str], own: Sequence[str], other: Sequence[str]) -> bool:
    """Whether lines have mostly words of the other of two texts."""
    return _are_of_other(_words(lines), _words(own), _words(other))


def is_in_unknown_language(lines: Sequence[str], own: Sequence[str]) -> bool:
    """Whether lines have hardly a word of a text, much fewer than one half of it has of the other."""
    usual = _known(_words(own[1::2]), _words(own[::2]))
    return usual > _SAYS_SOMETHING and _known(_words(lines), _words(own)) < _FEW_KNOWN * usual


def _known(words: Counter[str], others: Counter[str]) -> float:
    """The share of words that others have, too."""
    return sum(count for word, count in words.items() if word in others) / max(words.total(), 1)


def _words(lines: Sequence[str]) -> Counter[str]:
    every = max(1, len(lines) // _LINES_COUNTED)
    return Counter(word for line in lines[::every] for word in line.split())


def _are_of_other(words: Counter[str], own: Counter[str], other: Counter[str]) -> bool:
    """Whether most words are much more frequent in the other text than in their own."""
    ours = theirs = 0
    own_total, other_total = own.total(), other.total()
    for word, count in words.items():
        own_rate, other_rate = own[word] / own_total, other[word] / other_total
        ours += count * (own_rate > _MUCH_MORE * other_rate)
        theirs += count * (other_rate > _MUCH_MORE * own_rate)
    return theirs > _MOST * ours and theirs > _ENOUGH_WORDS * words.total()
