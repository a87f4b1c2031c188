"""Made-up parallel texts, and strategies for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from qknorm.data.batches import Encoded, FixedPairs

PIECES = 9
Sentence = list[int]
Text = list[tuple[Sentence, Sentence]]

_sentences = st.lists(st.integers(0, PIECES - 1), max_size=5)
texts: st.SearchStrategy[Text] = st.lists(st.tuples(_sentences, _sentences), min_size=1, max_size=6)


def unseen(done: int, total: int) -> None:
    """Progress that nobody watches."""
    assert 0 <= done <= total


def encoded(text: Sequence[tuple[Sentence, Sentence]]) -> FixedPairs:
    return FixedPairs(Encoded.from_lists([a for a, _ in text]), Encoded.from_lists([b for _, b in text]))


def turned(text: Text) -> Text:
    return [(target, source) for source, target in text]


def dictionary_text(words: int, sentences: int, seed: int = 0) -> tuple[FixedPairs, NDArray[np.int64]]:
    """Sentences of Zipfian words 0 … words-1, each word translated by a dictionary, the order disturbed a little.

    Returned with the dictionary: the translation of each word, a number from `words` on.
    """
    rng = np.random.default_rng(seed)
    dictionary = words + rng.permutation(words)
    chances = 1 / np.arange(3, words + 3)
    text = []
    for _ in range(sentences):
        source = rng.choice(words, rng.integers(3, 12), p=chances / chances.sum())
        moved = np.argsort(np.arange(len(source)) + rng.uniform(0, 3, len(source)))
        text.append((source.tolist(), dictionary[source[moved]].tolist()))
    return encoded(text), dictionary
