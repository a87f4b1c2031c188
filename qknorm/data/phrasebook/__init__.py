"""phrasebook-en-gl, the corpus that needs no network: a grammar and its words."""

from qknorm.data.phrasebook.grammar import MAXIMUM, Bilingual, lexicon_size, pairs

__all__ = ["MAXIMUM", "Bilingual", "lexicon_size", "pairs"]
