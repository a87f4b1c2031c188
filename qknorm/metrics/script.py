"""Which scripts are written without spaces between words, and how BLEU counts words in them."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

# How Unicode's names of characters begin. Hangul is not among them: Korean is written with spaces.
_HAN = ("CJK", "IDEOGRAPHIC ITERATION MARK")
_KANA = ("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA")
_SPACELESS = (*_HAN, *_KANA, "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")

_MOST = 1 / 2
_SOME = 1 / 10  # Japanese is about half kana; in Chinese only a borrowed name has any


def is_spaceless(character: str) -> bool:
    """Whether it belongs to a script that has no spaces between words."""
    return unicodedata.name(character, "").startswith(_SPACELESS)


def bleu_tokenizer(references: Sequence[str]) -> str:
    """sacrebleu's tokenizer for text in the script of these references, so that all systems compared share it.

    13a, the default, cuts at spaces and punctuation: a Chinese sentence would be one word, right or wrong as a whole.
    zh makes a word of each Han character but leaves kana, Thai and the like together; char cuts everywhere.
    """
    letters = Counter(character for line in references for character in line if character.isalpha())
    if _share(letters, _SPACELESS) <= _MOST:
        return "13a"
    return "zh" if _share(letters, _HAN) > _MOST and _share(letters, _KANA) < _SOME else "char"


def _share(letters: Counter[str], names: tuple[str, ...]) -> float:
    """Of all letters, those of a script."""
    counted = sum(count for letter, count in letters.items() if unicodedata.name(letter, "").startswith(names))
    return counted / max(letters.total(), 1)
