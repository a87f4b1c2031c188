"""Parallel texts whose alignment is known, cut at random and aligned again; and noise that was put into them, found.

    python -m benchmarks.alignment FOLDER [--lines 3000] [--merged 0.1] [--missing 0.03]

FOLDER has a folder for each text, such as ted-gl-en, with train.gl and train.en. For `qknorm data align`, of each side
a share of the lines is missing and a share is joined to the line before it, as one sentence; a pair is right if both of
its sides are made of the same lines. For `qknorm data suspects`, one target in twenty is that of another line, or half
of itself: how many of these are among the most doubtful twentieth, and how likely one is more doubtful than a pair that
nobody has touched (AUC). Prints tables.
"""

from __future__ import annotations

import argparse
import random
from itertools import chain
from pathlib import Path

import numpy as np
from rich.table import Table
from scipy.stats import rankdata

from benchmarks.common import machine
from qknorm.counting.books import Bead, align
from qknorm.counting.suspects import suspects
from qknorm.data.sentences import sentences
from qknorm.data.textfiles import read_lines
from qknorm.screen import Screen

TEXTS = ("europarl-pt-en", "alt-en-vi", "multi30k-en-de", "ted-gl-en")
NOISY = 20  # one line in so many


def unseen(done: int, total: int) -> None:
    """Progress that nobody watches."""
    assert done <= total


Cut = list[tuple[str, set[int]]]
"""Sentences, and the numbers of the lines that they are made of."""


def cut(lines: list[str], merged: float, missing: float, draw: random.Random) -> Cut:
    units: Cut = []
    for number, line in enumerate(lines):
        if draw.random() < missing:
            continue
        if units and len(units[-1][1]) == 1 and draw.random() < merged:
            units[-1] = (f"{units[-1][0].rstrip(' .!?;:')}, {line[0].lower()}{line[1:]}", units[-1][1] | {number})
        else:
            units.append((line, {number}))
    return [(sentence, numbers) for line, numbers in units for sentence in sentences(line)]


def right_of(source: Cut, target: Cut, beads: list[Bead]) -> tuple[int, int, int]:
    """How many pairs are right, of how many; and how many groups of lines there are that both sides have.

    Lines that a sentence of either side is made of are one group.
    """
    group = list(range(1 + max(chain(*(numbers for _, numbers in source + target)))))
    for _, numbers in (unit for unit in (*source, *target) if len(unit[1]) > 1):
        old, new = ({group[number] for number in numbers}, group[min(numbers)])
        group = [new if number in old else number for number in group]
    ours, theirs = ([{group[number] for number in numbers} for _, numbers in side] for side in (source, target))
    wrong: set[int] = set()
    found: set[int] = set()
    right = 0
    for bead in beads:
        one, other = set().union(*(ours[i] for i in bead.source)), set().union(*(theirs[j] for j in bead.target))
        is_right = one == other and len(one) == 1
        right += is_right
        (found if is_right else wrong).update(one | other)
    groups = set().union(*ours) & set().union(*theirs)
    return right, len((found - wrong) & groups), len(groups)


def aligned(source: list[str], target: list[str], merged: float, missing: float) -> list[str]:
    draw = random.Random(1)
    ours, theirs = cut(source, merged, missing, draw), cut(target, merged, missing, draw)
    beads = align([sentence for sentence, _ in ours], [sentence for sentence, _ in theirs], unseen)
    row = [f"{len(ours):,}", f"{len(theirs):,}"]
    for chosen in ([bead for bead in beads if bead.is_pair], [bead for bead in beads if bead.is_sure]):
        right, found, groups = right_of(ours, theirs, chosen)
        precision, recall = right / len(chosen), found / groups
        f1 = 2 * precision * recall / (precision + recall)
        row += [f"{len(chosen):,}", *(f"{100 * share:.1f}" for share in (precision, recall, f1))]
    return row


def with_noise(targets: list[str], is_half: bool, draw: random.Random) -> tuple[list[str], list[int]]:
    rows = draw.sample(range(len(targets)), len(targets) // NOISY)
    others, changed = draw.sample(targets, len(rows)), list(targets)
    for row, other in zip(rows, others, strict=True):
        words = targets[row].split()
        half = words[: len(words) // 2] if draw.random() < 0.5 else words[len(words) // 2 :]
        changed[row] = " ".join(half or words) if is_half else other
    return changed, rows


def found(source: list[str], target: list[str], is_half: bool) -> list[str]:
    changed, rows = with_noise(target, is_half, random.Random(1))
    scores = suspects(source, changed, unseen)
    worst = np.argsort(-scores)[: len(rows)]
    ranks, noise, rest = rankdata(scores)[rows].sum(), len(rows), len(scores) - len(rows)
    auc = (ranks - noise * (noise + 1) / 2) / (noise * rest)
    return [f"{100 * np.isin(worst, rows).mean():.0f} %", f"{auc:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--merged", type=float, default=0.1)
    parser.add_argument("--missing", type=float, default=0.03)
    options = parser.parse_args()
    together = Table("text", "sentences", "", "pairs", "right %", "found %", "F1", "sure", "right %", "found %", "F1")
    noisy = Table("text", "targets of others", "AUC", "half of themselves", "AUC")
    for name in TEXTS:
        source, target = (list(read_lines(options.folder / name / f"train.{code}")) for code in name.split("-")[-2:])
        few = slice(options.lines)
        together.add_row(name, *aligned(source[few], target[few], options.merged, options.missing))
        noisy.add_row(name, *found(source, target, is_half=False), *found(source, target, is_half=True))
    console = Screen(width=120)
    console.print(machine())
    console.print(together)
    console.print(noisy)


if __name__ == "__main__":
    main()
