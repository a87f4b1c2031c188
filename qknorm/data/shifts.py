"""Where two files are out of step by some lines: their lengths then agree with those of other lines.

A line and its translation are long or short together. For each shift k, line i of the source and line i + k of the
target say how likely they are a pair, by the logarithm of their lengths, by the digits in them and by their last sign;
the shifts of all lines together are the likeliest path (Viterbi) along which a change of k costs as much as a window of
chance agreement.
"""

from __future__ import annotations

import itertools
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from qknorm.data.importers import Pair
from qknorm.data.jsonfiles import Stored

MOST = 10
"""Lines by which files may be out of step."""
_CHANGE = 12.0  # nats that another shift must gain
_CAP = 3.0  # nats that a single line may say: one odd pair is not a shift
_SURE = 0.3  # nats that its lines gain in the mean: chance, with so many shifts to choose from, gains less
_FEWEST = 40  # lines that are out of step, before anybody is told
_GAP = 100  # lines between two stretches of one shift that are one
_AGREED = 0.25  # the spread of the logarithm of a pair's lengths
_MARKS = 3  # of a line
_DIGITS = re.compile(r"\d+")
_SIGN, _SIGNS = re.compile(r"([?!:])[\s\"'»”’)]*$"), "?!:"

Numbers = NDArray[np.float64]


class Shift(Stored):
    """Lines that are out of step."""

    first: int
    """The first of them in the source, counted from 1."""
    last: int
    by: int
    """Line i of the source is translated in line i + by of the target."""

    def __str__(self) -> str:
        more, fewer = ("target", "source") if self.by > 0 else ("source", "target")
        lines = f"{abs(self.by)} line{'s' if abs(self.by) > 1 else ''}"
        return (
            f"from about line {self.first:,} to line {self.last:,} source and target are out of step: the {more} has "
            f"{lines} there that the {fewer} lacks; take them out"
        )


class Steps:
    """What is remembered of each pair that streams through, to see where the two sides are out of step."""

    def __init__(self) -> None:
        self._marks = array("d")

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs as they are."""
        for pair in pairs:
            self._marks.extend(_marks(pair.source))
            self._marks.extend(_marks(pair.target))
            yield pair

    def shifts(self) -> list[Shift]:
        """Return the stretches that are out of step, in their order; none where the text cannot tell."""
        source, target = np.frombuffer(self._marks).reshape(-1, 2, _MARKS).swapaxes(0, 1)
        if len(source) <= 2 * _FEWEST:
            return []
        gains = _gains(source, target)
        if not _may_gain(gains):
            return []
        path = _likeliest(gains)
        gained = np.take_along_axis(gains, path[:, None], axis=1)[:, 0]
        return [shift for shift in _stretches(path - MOST) if gained[shift.first - 1 : shift.last].mean() > _SURE]


def _marks(line: str) -> tuple[float, float, float]:
    """The logarithm of its length; a number for its digits, or -1; which sign it ends with, or -1."""
    digits, sign = "".join(_DIGITS.findall(line)), _SIGN.search(line[-12:])
    return (
        float(np.log1p(len(line))),
        zlib.crc32(digits.encode()) if digits else -1,
        _SIGNS.find(sign[1]) if sign else -1,
    )


def _gains(source: Numbers, target: Numbers) -> Numbers:
    """(lines, shifts): how much likelier than chance each line of the source belongs to that of the target."""
    chance = float(np.hypot(source[:, 0].std(), target[:, 0].std()))
    usual = float(np.median(target[:, 0]) - np.median(source[:, 0]))
    gains = np.zeros((len(source), 2 * MOST + 1))
    for column, by in enumerate(range(-MOST, MOST + 1)):
        rows = np.arange(max(0, -by), min(len(source), len(target) - by))
        ours, theirs = source[rows], target[rows + by]
        told = _told_by(ours[:, 1], theirs[:, 1], 2.0, -1.0) + _told_by(ours[:, 2], theirs[:, 2], 1.5, -0.75)
        if chance > _AGREED:  # or else all lines are of one length
            apart = theirs[:, 0] - ours[:, 0] - usual
            told += np.log(chance / _AGREED) + 0.5 * ((apart / chance) ** 2 - (apart / _AGREED) ** 2)
        gains[rows, column] = np.clip(told, -_CAP, _CAP)
    return gains


def _told_by(ours: Numbers, theirs: Numbers, equal: float, unequal: float) -> Numbers:
    """What a mark says, where one of both lines has it."""
    told: Numbers = np.where(ours == theirs, equal, unequal) * ((ours >= 0) | (theirs >= 0))
    return told


def _may_gain(gains: Numbers) -> bool:
    """Whether another shift gains enough over none somewhere to be worth a look along the whole text."""
    sums = np.cumsum(gains - gains[:, MOST : MOST + 1], axis=0)
    return bool((sums - np.minimum.accumulate(sums, axis=0)).max() > 2 * _CHANGE)


def _likeliest(gains: Numbers) -> NDArray[np.int64]:
    """The column of each line, along the path that gains most."""
    stay = np.arange(gains.shape[1], dtype=np.int8)
    best, came_from = gains[0] - _CHANGE * (stay != MOST), np.zeros(gains.shape, dtype=np.int8)
    for row in range(1, len(gains)):
        leader = int(best.argmax())
        least = best[leader] - _CHANGE
        came_from[row] = np.where(best < least, leader, stay)
        best = np.maximum(best, least) + gains[row]
    path = np.empty(len(gains), dtype=np.int64)
    path[-1] = best.argmax()
    for row in range(len(gains) - 1, 0, -1):
        path[row - 1] = came_from[row, path[row]]
    return path


def _stretches(path: NDArray[np.int64]) -> list[Shift]:
    """Lines that follow each other out of step by as much; what lies between two such stretches may be short."""
    bounds = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    found: list[Shift] = []
    for start, end in itertools.pairwise(bounds):
        if end - start < _FEWEST or not path[start]:
            continue
        if found and found[-1].by == path[start] and start - found[-1].last < _GAP:
            start = found.pop().first - 1
        found.append(Shift(first=start + 1, last=end, by=int(path[start])))
    return found
