"""Scores of translations, through sacrebleu. A score carries the signature of how it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacremoses import MosesDetokenizer, MosesTokenizer

from qknorm.errors import InputError


def bleu_metric(tokenized: bool) -> BLEU:
    """BLEU of text as it stands if it is tokenised (Moses multi-bleu), else sacrebleu's default."""
    return BLEU(tokenize="none", smooth_method="none", force=True) if tokenized else BLEU()


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenized: bool) -> float:
    return float(bleu_metric(tokenized).corpus_score(list(hypotheses), [list(references)]).score)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """chrF (character n-grams up to 6), sacrebleu's default. Spaces do not count, so tokenised text scores alike."""
    return float(CHRF().corpus_score(list(hypotheses), [list(references)]).score)


def scores(
    hypotheses: Sequence[str], references: Sequence[str], tokenized: bool, language: str = "en"
) -> dict[str, Any]:
    """All scores of a test set. `tokenized` says whether the lines are tokenised; the other form is made from them."""
    if len(hypotheses) != len(references):
        raise InputError(
            f"there are {len(hypotheses):,} translations but {len(references):,} references; they must be line by line"
        )
    if not hypotheses:
        raise InputError("there is nothing to score: the files are empty")
    if tokenized:
        tokens = list(hypotheses), list(references)
        text = detokenized(hypotheses, language), detokenized(references, language)
    else:
        tokens = moses_tokenized(hypotheses, language), moses_tokenized(references, language)
        text = list(hypotheses), list(references)
    default, ours, theirs = BLEU(), text[0], [text[1]]
    return {
        "bleu": default.corpus_score(ours, theirs).score,
        "bleu_tokenized": bleu(*tokens, tokenized=True),
        "chrf": CHRF().corpus_score(ours, theirs).score,
        "chrf++": CHRF(word_order=2).corpus_score(ours, theirs).score,
        "ter": TER().corpus_score(ours, theirs).score,
        "lines": len(hypotheses),
        "signature": str(default.get_signature()),
    }


def worst(hypotheses: Sequence[str], references: Sequence[str], count: int) -> list[tuple[int, float]]:
    """The rows of the translations with the lowest chrF, and that, the lowest first."""
    found = enumerate(sentence_chrf(hypotheses, references))
    return sorted(found, key=lambda scored: scored[1])[:count]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each line by itself."""
    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return [float(metric.sentence_score(ours, [theirs]).score) for ours, theirs in pairs]


def detokenized(lines: Sequence[str], language: str) -> list[str]:
    """Tokenised lines as one would write them, HTML escapes such as &apos; resolved."""
    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split(" "), unescape=True) for line in lines]


def moses_tokenized(lines: Sequence[str], language: str) -> list[str]:
    """Lines as people write them, as tokens with spaces between."""
    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True, escape=False) for line in lines]
