"""A corpus made ready for training once: cleaned, its vocabulary learned, encoded, and kept under a key of its content.

The folder of a prepared corpus:

    corpus.json  dropped.tsv  tokenizer.json  train.source  train.target  train.safetensors
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from qknorm.attention.scale import percentile_length
from qknorm.data.batches import Encoded, FixedPairs
from qknorm.data.cleaning import Report, Rules, add_earlier, clean, refuse_if_nothing_is_left
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.splits import Origin
from qknorm.data.subwords import EOS, UNK, Scheme, Subwords
from qknorm.data.textfiles import open_bytes, read_lines, replacing
from qknorm.errors import InputError

CORPUS, TOKENIZER, DROPPED = "corpus.json", "tokenizer.json", "dropped.tsv"
"""Files of a prepared corpus that are copied into run folders."""

_FORMAT = 3  # of the folder; another number makes all corpora anew

# Learning a vocabulary from several corpora, each counts by (its number of sentences) to this power.
_TEXT_SMOOTHING = 0.5


@dataclass(frozen=True)
class ParallelFiles:
    """Where the sentences of one language pair lie. Dev and test are read only to keep them out of training."""

    source: Path
    target: Path
    held_out: tuple[tuple[Path, Path], ...] = ()
    origin: Origin | None = None
    """The text that these sentences were split off, if they were."""

    @property
    def paths(self) -> list[Path]:
        """All that decides what is learned from, and what is said of it."""
        held_out = [path for files in self.held_out for path in files]
        noted = [] if self.origin is None else [self.origin.numbers, self.origin.dropped]
        return [self.source, self.target, *held_out, *noted]


@dataclass(frozen=True)
class PreparedDirection:
    """One language pair, ready for batches."""

    sources: list[str]
    targets: list[str]
    encoded: FixedPairs
    report: dict[str, Any]
    """What was read, kept and dropped, and the longest source sentence in pieces, as in corpus.json.

    What was split off for dev and test counts as none of these.
    """
    folder: Path
    """Where its dropped.tsv lies."""


@dataclass(frozen=True)
class Prepared:
    """One vocabulary, and the directions that share it."""

    subwords: Subwords
    directions: list[PreparedDirection]
    folder: Path

    def target_pieces(self, bpe_dropout: bool = False, among: Sequence[int] | None = None) -> torch.Tensor:
        """(pieces,), True for those that occur in a target sentence, and for UNK and EOS: the mask of the logits.

        With BPE-dropout, True for all that may be drawn. `among`: only in the sentences of these directions, such as
        those with the same target language.
        """
        directions = self.directions if among is None else [self.directions[number] for number in among]
        if bpe_dropout:
            used = self.subwords.within(line for direction in directions for line in direction.targets)
        else:
            used = {int(number) for direction in directions for number in np.unique(direction.encoded.target.numbers)}
        mask = torch.zeros(len(self.subwords), dtype=torch.bool)
        mask[[UNK, EOS, *sorted(used)]] = True
        return mask

    def length(self, percentile: float = 97.5) -> float:
        """L of `henry_scale`: a percentile of the sequence lengths in pieces, source and target together."""
        sides = [
            side.lengths
            for direction in self.directions
            for side in (direction.encoded.source, direction.encoded.target)
        ]
        return percentile_length(np.concatenate(sides).tolist(), percentile)


def prepare(directions: Sequence[ParallelFiles], merges: int, scheme: Scheme, rules: Rules, cache: Path) -> Prepared:
    """Clean, learn the joint vocabulary, encode; or find what the same files and settings gave before."""
    tidied = ("tidy",) if rules.tidy else ()
    folder = cache / "prepared" / _key(directions, merges, scheme, rules, *tidied)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # several processes of one training run come here together
        if not folder.exists():
            _make(folder, directions, merges, scheme, rules)
    return _load(folder, len(directions))


def _key(directions: Sequence[ParallelFiles], *settings: object) -> str:
    def content(path: Path) -> str:
        digest = hashlib.sha256()
        with open_bytes(path) as file:
            while part := file.read(2**20):
                digest.update(part)
        return digest.hexdigest()

    contents = [[content(path) for path in direction.paths] for direction in directions]
    return hashlib.sha256(repr((_FORMAT, contents, settings)).encode()).hexdigest()[:24]


def _make(folder: Path, directions: Sequence[ParallelFiles], merges: int, scheme: Scheme, rules: Rules) -> None:
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
    try:
        cleaned = [_clean_direction(files, rules, _place(scratch, number)) for number, files in enumerate(directions)]
        subwords = Subwords.learn(_text_for_vocabulary([kept for kept, _ in cleaned]), merges, scheme)
        subwords.save(scratch / TOKENIZER)
        for number, (kept, report) in enumerate(cleaned):
            report["longest_source"] = _write_direction(kept, subwords, _place(scratch, number))
        with replacing(scratch / CORPUS) as file:
            about = {"pieces": len(subwords), "rules": asdict(rules), "pairs": [report for _, report in cleaned]}
            file.write(json.dumps(about, indent=1, ensure_ascii=False).encode())
        scratch.chmod(0o755)
        scratch.replace(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _place(folder: Path, number: int) -> Path:
    """The folder of a direction: that of the corpus itself for the first, a numbered one below it for others."""
    place = folder if number == 0 else folder / f"pair-{number + 1}"
    place.mkdir(exist_ok=True)
    return place


def _clean_direction(files: ParallelFiles, rules: Rules, place: Path) -> tuple[list[Pair], dict[str, Any]]:
    report, origin = Report(), files.origin
    held_out: Iterable[Pair] = (pair for two in files.held_out for pair in read_aligned(*two))
    numbers = None if origin is None else origin.read_numbers()
    kept = list(clean(read_aligned(files.source, files.target), rules, place / DROPPED, held_out, report, numbers))
    if origin is not None:
        add_earlier(origin.dropped, place / DROPPED, report)
    named = files if origin is None else origin
    refuse_if_nothing_is_left(report, named.source, named.target)
    words = sum(len(side.split()) for pair in kept for side in pair)
    return kept, {"read": report.read, "kept": report.kept, "words": words, "dropped": dict(report.dropped)}


def _text_for_vocabulary(corpora: Sequence[Sequence[Pair]]) -> Iterator[str]:
    """Both sides of every corpus; a smaller corpus is repeated until it counts by its size to the power 0.5."""
    largest = max(map(len, corpora))
    for corpus in corpora:
        lines = round(largest * (len(corpus) / largest) ** _TEXT_SMOOTHING)
        for row in range(max(lines, len(corpus))):
            yield from corpus[row % len(corpus)]


def _write_direction(kept: Sequence[Pair], subwords: Subwords, place: Path) -> int:
    """Returns how many pieces the longest source sentence has: what a model can be trusted to read."""
    arrays: dict[str, NDArray[Any]] = {}
    for side, lines in (("source", [pair.source for pair in kept]), ("target", [pair.target for pair in kept])):
        encoded = Encoded.from_lists(subwords.encode(lines))
        arrays[f"{side}.numbers"], arrays[f"{side}.offsets"] = encoded.numbers, encoded.offsets
        with replacing(place / f"train.{side}") as file:
            file.writelines(line.encode() + b"\n" for line in lines)
    try:
        save_file(arrays, place / "train.safetensors")
    except SafetensorError as error:
        raise InputError(f"{place / 'train.safetensors'} could not be written: {error}") from None
    return int(np.diff(arrays["source.offsets"]).max())


def _load(folder: Path, count: int) -> Prepared:
    try:
        about = json.loads((folder / CORPUS).read_text(encoding="utf-8"))
        folders = [folder if number == 0 else folder / f"pair-{number + 1}" for number in range(count)]
        loaded = [load_file(place / "train.safetensors") for place in folders]
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(folder, error) from None
    directions = []
    for number, (place, arrays) in enumerate(zip(folders, loaded, strict=True)):
        source, target = (
            Encoded(arrays[f"{side}.numbers"], arrays[f"{side}.offsets"]) for side in ("source", "target")
        )
        lines = [list(read_lines(place / f"train.{side}")) for side in ("source", "target")]
        if not len(source) == len(target) == len(lines[0]) == len(lines[1]):
            raise _damaged(place, "its files differ in length")
        directions.append(
            PreparedDirection(lines[0], lines[1], FixedPairs(source, target), about["pairs"][number], place)
        )
    return Prepared(Subwords.load(folder / TOKENIZER), directions, folder)


def _damaged(folder: Path, reason: object) -> InputError:
    return InputError(f"{folder} is damaged ({reason}); delete the folder and start again")
