"""What is held out must not be learned from: sentences of dev and test sets in training text, whole or nearly."""

from __future__ import annotations

from collections.abc import Iterable

from qknorm.data.importers import Pair

LEAKS = "a sentence of it is in dev or test"
"""The reason why a pair is dropped of which one side is held out."""
_WORDS = 4  # of a sentence that is somebody's own: shorter ones, such as "Thank you very", stand everywhere
_CHARACTERS = 20  # the same where words have no spaces between them
_IN_A_ROW = 6


class HeldOut:
    """The sentences of dev and test sets, of both languages of all pairs."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        lines = {side.lower() for pair in pairs for side in pair}
        self._sentences = {line for line in lines if _is_somebodys_own(line)}
        self._rows_of_words = {row for line in lines for row in _rows_of_words(line)}

    def hold(self, pair: Pair) -> bool:
        """Whether either side is one of them. Of short ones, which stand everywhere, nothing is said."""
        return any(side.lower() in self._sentences for side in pair)

    def resemble(self, pair: Pair) -> bool:
        """Whether either side shares six words in a row with one of them."""
        return any(not self._rows_of_words.isdisjoint(_rows_of_words(side.lower())) for side in pair)


def _is_somebodys_own(line: str) -> bool:
    words = len(line.split())
    return words >= _WORDS or (words == 1 and len(line) >= _CHARACTERS)


def _rows_of_words(line: str) -> set[int]:
    """The hashes of all six words in a row; they are compared within a process only."""
    words = line.split()
    return {hash(tuple(words[start : start + _IN_A_ROW])) for start in range(len(words) - _IN_A_ROW + 1)}
