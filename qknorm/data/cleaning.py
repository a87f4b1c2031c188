"""What is dropped from a corpus and why, line by line.

Nothing disappears silently: every dropped pair is written to dropped.tsv with its number and its reason. The corpus
streams through; of each pair only a fingerprint is remembered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qknorm.data.importers import Pair
from qknorm.data.pipeline import TextPipeline
from qknorm.data.shifts import Shift, Steps
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError

HELD_OUT = "also in dev or test"
"""The reason why a pair is dropped that stands there."""
NO_TRANSLATION = "hardly a translation"
"""That of one whose words do not translate each other, as far as is counted."""
_SHOWN_CHARACTERS = 200  # of a dropped line, in dropped.tsv


@dataclass(frozen=True)
class Rules:
    """When a pair is dropped. A rule that is None or False does not apply."""

    max_characters: int | None = 2000
    """The longer side of a pair; a sentence of 2,000 characters is usually a paragraph that nobody split."""
    max_ratio: float | None = 6.0
    """Longer side over shorter side, in characters, unless both are short (up to 20 characters)."""
    control_characters: bool = True
    """Characters of category Cc other than the tab, NUL among them."""
    duplicates: bool = True
    """A pair that stood earlier in the corpus."""
    copies: bool = True
    """Source equal to target, unless there is no letter in it."""
    held_out: bool = True
    """A training pair that also stands, source and target, in the dev or test set."""
    apart: bool = False
    """A pair of which one side stands in the dev or test set of any language pair; judged when all are read."""
    max_suspicion: float | None = None
    """How little its words may translate each other, as `counting.suspects` has it; judged when all are read."""


@dataclass
class CleaningReport:
    """Counts of one pass over a corpus."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    source_lengths: Counter[int] = field(default_factory=Counter)
    """Kept pairs by number of words on the source side."""
    target_lengths: Counter[int] = field(default_factory=Counter)
    out_of_step: list[Shift] = field(default_factory=list)
    """Where one of two files lacks lines."""


def fingerprint(pair: Pair) -> int:
    """64 bits that are the same on every machine; two of 5 million pairs agree by chance once in a million corpora."""
    digest = hashlib.blake2b(f"{pair.source}\n{pair.target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def clean(
    pairs: Iterable[Pair],
    rules: Rules,
    dropped: Path,
    held_out: Iterable[Pair] = (),
    report: CleaningReport | None = None,
    pipeline: TextPipeline | None = None,
) -> Iterator[Pair]:
    """The pairs that pass, as the pipeline writes them; the others go to the file `dropped`, which appears at the end.

    At each pair that is given, `report.read` is its number.
    """
    report, pipeline = report or CleaningReport(), pipeline or TextPipeline()
    held_out_fingerprints = {fingerprint(written(pair, pipeline)) for pair in held_out} if rules.held_out else set()
    seen: set[int] = set()
    with replacing(dropped) as file:
        file.write(b"line\treason\tsource\ttarget\n")
        steps = Steps()
        for pair in steps.watch(written(pair, pipeline) for pair in pairs):
            report.read += 1
            reason = _reason_to_drop(pair, rules) or _reason_by_memory(pair, rules, seen, held_out_fingerprints)
            if reason:
                report.dropped[reason] += 1
                file.write(dropped_row(report.read, reason, pair))
                continue
            report.kept += 1
            report.source_lengths[len(pair.source.split())] += 1
            report.target_lengths[len(pair.target.split())] += 1
            yield pair
    report.out_of_step = steps.shifts()


def refuse_if_nothing_is_left(report: CleaningReport, source: Path, target: Path) -> None:
    """An InputError if no pair of two files can be learned from."""
    if not report.read:
        raise InputError(f"{source} and {target} are empty; there is nothing to learn from")
    if not report.kept:
        most = report.dropped.most_common(1)[0][0]
        raise InputError(f"no pair of {source} and {target} is left after cleaning; most were: {most}")


def written(pair: Pair, pipeline: TextPipeline) -> Pair:
    """A pair as the pipeline writes it."""
    return Pair(*map(pipeline.written, pair))


def _reason_to_drop(pair: Pair, rules: Rules) -> str | None:
    """The first rule that the pair breaks by itself."""
    source, target = pair
    if not source.strip() or not target.strip():
        both = not source.strip() and not target.strip()
        return "both sides blank" if both else "source blank" if not source.strip() else "target blank"
    longer, shorter = max(len(source), len(target)), min(len(source), len(target))
    if rules.max_characters is not None and longer > rules.max_characters:
        return "too long"
    if rules.control_characters and any(_is_control(character) for character in source + target):
        return "control character"
    if rules.max_ratio is not None and longer > 20 and longer > rules.max_ratio * shorter:
        return "lengths too different"
    if rules.copies and source == target and any(map(str.isalpha, source)):
        return "source equals target"
    return None


def _reason_by_memory(pair: Pair, rules: Rules, seen: set[int], held_out: set[int]) -> str | None:
    """The first rule that the pair breaks by what stood before it or stands elsewhere."""
    if not (rules.duplicates or held_out):
        return None
    mark = fingerprint(pair)
    if mark in held_out:
        return HELD_OUT
    if rules.duplicates:
        if mark in seen:
            return "duplicate"
        seen.add(mark)
    return None


def _is_control(character: str) -> bool:
    return (character < " " and character != "\t") or "\x7f" <= character <= "\x9f"


def dropped_row(number: int, reason: str, pair: Pair) -> bytes:
    """A line of dropped.tsv."""
    excerpts = (side[:_SHOWN_CHARACTERS].replace("\t", " ").replace("\r", " ") for side in pair)
    return ("\t".join((str(number), reason, *excerpts)) + "\n").encode()
