"""Terms and their translations: a table with two columns, and where its terms stand in a line."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError

_LONGEST = 200  # characters of a term, or of its translation
# A word with the signs on its letters; where no spaces separate words, a character; any other sign.
_TOKEN = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"|\w[\w\u0300-\u036f\u0590-\u05c7\u064b-\u0670\u0900-\u0df3]*|\S"
)
_TITLES = {"source", "src", "term", "original"}, {"target", "tgt", "trg", "translation"}


class Glossary:
    """Terms by which whole words of a line are replaced: the longest first, none inside of another.

    A term without capitals is found in any case; one with capitals as it is written.
    """

    def __init__(self, terms: Mapping[str, str] | None = None) -> None:
        self.terms = {_in_one_way(term): _in_one_way(translation) for term, translation in (terms or {}).items()}

    @cached_property
    def _by_words(self) -> dict[tuple[str, ...], str]:
        return {tuple(_TOKEN.findall(term)): translation for term, translation in self.terms.items()}

    @cached_property
    def _lengths(self) -> list[int]:
        """Of terms in words, the longest first."""
        return sorted({len(words) for words in self._by_words}, reverse=True)

    def find(self, line: str) -> Iterator[tuple[int, int]]:
        """Where terms stand; a shorter one may lie in a longer one, which comes first."""
        tokens = list(_TOKEN.finditer(line)) if self.terms else []
        words = [unicodedata.normalize("NFC", token[0]) for token in tokens]
        for length in self._lengths:
            for first in range(len(words) - length + 1):
                if self._known(words[first : first + length]) is not None:
                    yield tokens[first].start(), tokens[first + length - 1].end()

    def translation(self, text: str) -> str:
        """Of a term as it stands in a line."""
        known = self._known(_TOKEN.findall(_in_one_way(text)))
        assert known is not None
        return known

    def _known(self, words: Sequence[str]) -> str | None:
        exact = self._by_words.get(tuple(words))
        return exact if exact is not None else self._by_words.get(tuple(map(str.lower, words)))


def _in_one_way(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def read_glossary(path: Path, source: str, target: str) -> Glossary:
    """The terms of such a file, each of which must have one translation."""
    terms: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, term, translation in read_entries(path, source, target):
        if problem := _problem(term, translation, terms, lines):
            raise InputError(f"{path}, line {number}: {problem}")
        terms[term], lines[term] = translation, number
    return Glossary(terms)


def read_entries(path: Path, source: str, target: str) -> Iterator[tuple[int, str, str]]:
    """The lines of a file with two columns, by tabs, semicolons or commas; its first line may say what they are.

    source, target: the codes of the languages; a first line that has them the other way round turns the columns.
    """
    rows = {number: row for number, row in _rows(path) if any(row)}
    first = next(iter(rows.values()), [])
    titles = [cell.lower() for cell in first[:2]]
    is_turned = titles == [target.lower(), source.lower()]
    if is_turned or titles == [source.lower(), target.lower()] or _are_titles(titles):
        del rows[next(iter(rows))]
    if not rows:
        raise InputError(f"{path} holds no term; each line has a term and its translation, such as house\tcasa")
    for number, row in rows.items():
        term, translation = row[:2][::-1] if is_turned else row[:2]
        yield number, term, translation


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of each line, and its cells, of which there are two at least."""
    start = next(read_lines(path), "")
    delimiter = next((sign for sign in "\t;," if sign in start), "\t")
    for number, line in enumerate(read_lines(path), start=1):
        cells = next(csv.reader([line], delimiter=delimiter), [])
        yield number, [*(_in_one_way(cell) for cell in cells), "", ""]


def _are_titles(cells: Sequence[str]) -> bool:
    return len(cells) == 2 and all(cell in names for cell, names in zip(cells, _TITLES, strict=True))


def _problem(term: str, translation: str, terms: Mapping[str, str], lines: Mapping[str, int]) -> str | None:
    """What is wrong with a line, in a sentence, if something is."""
    if not term or not translation:
        return f"{term or translation!r} has no translation" if term else f"{translation!r} translates nothing"
    if max(len(term), len(translation)) > _LONGEST:
        return f"a term of more than {_LONGEST} characters, which is not a term but a text"
    if term in terms:
        is_same = terms[term] == translation
        return f"{term!r} stands in line {lines[term]}, too" + (
            "" if is_same else f", where it is {terms[term]!r}: only one of them can be used"
        )
    return None
