"""The translation memories that people have, as one stream of sentence pairs.

Two aligned text files, TSV, JSONL, TMX 1.4, gettext PO and MO; each may be gzipped. A pair is two lines: line feeds
and tabs inside a segment become spaces.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError

import polib
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from qknorm.data.placeholders import is_placeholder
from qknorm.data.textfiles import open_bytes, read_lines
from qknorm.errors import InputError

# Elements of a TMX segment whose content is the formatting of some program, not language.
_NATIVE_CODES = ("bpt", "ept", "ph", "it", "ut")


class Pair(NamedTuple):
    """One sentence in two languages."""

    source: str
    target: str


def read_aligned(source: Path, target: Path) -> Iterator[Pair]:
    """Two text files, line by line. Unequal numbers of lines are an error that shows where the files seem to part."""
    sources, targets = read_lines(source), read_lines(target)
    while True:
        source_line, target_line = next(sources, None), next(targets, None)
        if source_line is None and target_line is None:
            return
        if source_line is None or target_line is None:
            raise InputError(_where_they_part(source, target))
        yield Pair(source_line, target_line)


def read_memory(path: Path, source_language: str, target_language: str) -> Iterator[Pair]:
    """One file that holds both languages; its format is told by its name."""
    if not is_memory(path):
        raise InputError(f"{path}: the format cannot be told by its name; known endings: {', '.join(FORMATS)}")
    return FORMATS[_ending(path)](path, source_language, target_language)


def is_memory(path: Path) -> bool:
    """Whether a file, by its name, holds both languages."""
    return _ending(path) in FORMATS


def languages_in(path: Path) -> tuple[str, str]:
    """The codes by which a memory can be imported: of a format that names none, any will do."""
    ending, known = _ending(path), list[str]()
    if ending == "tmx":
        units = (list(dict.fromkeys(code for code, _ in _segments(unit))) for unit in _units(path))
        known = next((codes for codes in units if len(codes) > 1), [])
    elif ending == "jsonl":
        texts = _texts(next(read_lines(path), "{}"), f"{path}, line 1")
        known = [key for key, text in texts.items() if isinstance(text, str)]
    elif ending in ("po", "mo"):
        known = ["en", _catalogue(path).metadata.get("Language", "")]
    usable = len(known) > 1 and known[0] != known[1] and all(re.fullmatch(r"[\w-]+", code) for code in known[:2])
    return (known[0], known[1]) if usable else ("source", "target")


def _ending(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


def _one_line(segment: str) -> str:
    return " ".join(re.split(r"[\r\n\t]+", segment)).strip()


def _read_tsv(path: Path, *_languages: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) < 2:
            raise InputError(f"{path}, line {number}: there is no tab, so no second language")
        yield Pair(fields[0], fields[1])


def _read_jsonl(path: Path, source_language: str, target_language: str) -> Iterator[Pair]:
    """Objects with the two language codes as keys, at the top or below "translation"."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        texts = _texts(line, f"{path}, line {number}")
        for language in (source_language, target_language):
            if not isinstance(texts.get(language), str):
                raise InputError(f'{path}, line {number}: there is no text under the key "{language}"')
            if any("\ud800" <= character <= "\udfff" for character in texts[language]):
                raise InputError(f'{path}, line {number}: half a character (a lone surrogate) under "{language}"')
        yield Pair(_one_line(texts[source_language]), _one_line(texts[target_language]))


def _texts(line: str, where: str) -> dict[str, Any]:
    """By language."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be a sentence pair") from None
    texts = record.get("translation", record) if isinstance(record, dict) else {}
    return texts if isinstance(texts, dict) else {}


def _read_tmx(path: Path, source_language: str, target_language: str) -> Iterator[Pair]:
    """Translation units that have both languages."""
    seen: Counter[str] = Counter()
    pairs = 0
    for unit in _units(path):
        segments = list(_segments(unit))
        seen.update(language for language, _ in segments)
        sources, targets = (_pick(segments, language) for language in (source_language, target_language))
        for source, target in itertools.product(sources, targets):
            pairs += 1
            yield Pair(source, target)
    if not pairs:
        languages = ", ".join(sorted(seen)) or "none"
        raise InputError(
            f"{path}: no unit has both {source_language} and {target_language}; its languages are: {languages}"
        )


def _units(path: Path) -> Iterator[Element]:
    """The translation units of a TMX. External entities and entity bombs are refused by the parser."""
    with open_bytes(path) as file:
        try:
            body = Element("body")
            for event, element in iterparse(file, events=("start", "end"), forbid_dtd=False):
                if event == "start" and element.tag == "body":
                    body = element
                if event == "end" and element.tag == "tu":
                    yield element
                    body.clear()  # or memory would grow with the file
        except DefusedXmlException as error:
            raise InputError(f"{path}: refused, since it defines an XML entity ({type(error).__name__})") from None
        except (ParseError, ValueError, LookupError) as error:  # the latter two for encodings it does not know
            raise InputError(f"{path}: not well-formed XML ({error})") from None


def _segments(unit: Element) -> Iterator[tuple[str, str]]:
    for variant in unit.iter("tuv"):
        language = variant.get("{http://www.w3.org/XML/1998/namespace}lang") or variant.get("lang") or ""
        segment = variant.find("seg")
        if segment is not None:
            yield language.lower(), _one_line(_words(segment))


def _words(element: Element) -> str:
    """The text of a segment; of the native codes in it those that are placeholders or tags."""
    parts = [element.text or ""]
    for child in element:
        parts += [_code(child) if child.tag in _NATIVE_CODES else _words(child), child.tail or ""]
    return "".join(parts)


def _code(element: Element) -> str:
    """What stands in a native code, if it is a placeholder or a tag."""
    text = "".join(element.itertext()).strip()
    return text if is_placeholder(text) else ""


def codes_left_out(path: Path) -> int:
    """How many native codes of a TMX are formatting that nobody can read, of which nothing is imported."""
    if _ending(path) != "tmx":
        return 0
    codes = (code for unit in _units(path) for code in unit.iter() if code.tag in _NATIVE_CODES)
    return sum(not _code(code) for code in codes)


def _pick(segments: Sequence[tuple[str, str]], language: str) -> list[str]:
    """The segments of a language, several where a unit has several translations; `en` also finds `en-GB`."""
    codes = list(dict.fromkeys(code for code, _ in segments))
    wanted = language.lower()
    if wanted not in codes:
        wanted = next((code for code in codes if code.replace("_", "-").startswith(wanted + "-")), wanted)
    return [text for code, text in segments if code == wanted]


def _read_gettext(path: Path, *_languages: str) -> Iterator[Pair]:
    """Translated entries; fuzzy and obsolete ones are left out. A plural gives its singular and its first plural."""
    for entry in _catalogue(path):
        if entry.obsolete or (isinstance(entry, polib.POEntry) and entry.fuzzy):
            continue
        if entry.msgid_plural:
            forms = [text for _, text in sorted(entry.msgstr_plural.items())]
            originals = [entry.msgid, *[entry.msgid_plural] * (len(forms) - 1)][:2]
            pairs = list(zip(originals, forms, strict=False))
        else:
            pairs = [(entry.msgid, entry.msgstr)]
        for original, translation in pairs:
            if translation:
                yield Pair(_one_line(original), _one_line(translation))


def _catalogue(path: Path) -> polib.POFile | polib.MOFile:
    suffix = _ending(path)
    with tempfile.NamedTemporaryFile(suffix="." + suffix) as unpacked:  # polib reads files by name
        with open_bytes(path) as file:
            unpacked.write(file.read())
        unpacked.flush()
        try:
            return polib.pofile(unpacked.name) if suffix == "po" else polib.mofile(unpacked.name)
        except (OSError, ValueError, IndexError, struct.error) as error:
            reason = str(error).replace(unpacked.name, path.name).strip() or "unreadable"
            raise InputError(f"{path}: not a gettext {suffix.upper()} file: {reason}") from None


FORMATS: dict[str, Callable[[Path, str, str], Iterator[Pair]]] = {
    "tsv": _read_tsv,
    "jsonl": _read_jsonl,
    "tmx": _read_tmx,
    "po": _read_gettext,
    "mo": _read_gettext,
}
"""How a file with both languages is read, by the ending of its name: a new format is a function and its line here."""


def _where_they_part(source: Path, target: Path) -> str:
    """One sentence: the two counts, and the line before which one file seems to have lost lines.

    Before that line, line i belongs to line i; after it, to line i + (difference). The break is where the two
    hypotheses together cost least; the cost of a pairing is how unlike the lengths are and whether numbers differ.
    """
    first, second = _Outline(source), _Outline(target)
    counts = f"{source} has {len(first.lengths)} lines and {target} has {len(second.lengths)}"
    if not first.lengths or not second.lengths:
        return f"{counts}; they must have the same number"
    shorter, longer = sorted((first, second), key=lambda outline: len(outline.lengths))
    missing = len(longer.lengths) - len(shorter.lengths)
    lines = len(shorter.lengths)
    cost = best = sum(shorter.unlikeness(i, longer, i + missing) for i in range(lines))
    place = 0
    for i in range(lines):
        cost += shorter.unlikeness(i, longer, i) - shorter.unlikeness(i, longer, i + missing)
        if cost < best:
            best, place = cost, i + 1
    text = next(islice(read_lines(shorter.path), place, None), None)
    where = "at its end" if text is None else f"before its line {place + 1} (“{text[:60]}”)"
    return f"{counts}; they must have the same number: {shorter.path} seems to lack {missing} {where}"


class _Outline:
    """Of each line of a file its length and a hash of its numbers: enough to tell whether two lines belong together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lengths, self.numbers = array("l"), array("q")
        for line in read_lines(path):
            self.lengths.append(len(line))
            self.numbers.append(hash(tuple(sorted(re.findall(r"\d+", line)))))

    def unlikeness(self, mine: int, other: _Outline, its: int) -> float:
        lengths = self.lengths[mine] + 5, other.lengths[its] + 5
        return max(lengths) / min(lengths) - 1 + (2.0 if self.numbers[mine] != other.numbers[its] else 0.0)
