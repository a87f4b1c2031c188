"""Scores of translations, through sacrebleu. A score carries the signature of how it was computed."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesDetokenizer, MosesTokenizer

from qknorm.errors import InputError
from qknorm.metrics.script import bleu_tokenizer
from qknorm.metrics.table import METRICS, bleu_metric
from qknorm.runs.contents import Scores


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenized: bool) -> float:
    """BLEU of text, or of tokens as they stand."""
    return METRICS["bleu"].score(hypotheses, references, tokenized)


def scores(hypotheses: Sequence[str], references: Sequence[str], tokenized: bool, language: str = "en") -> Scores:
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
        tokens = tokens_of(hypotheses, references, language), tokens_of(references, references, language)
        text = list(hypotheses), list(references)
    values = {name: metric.score(*(tokens if metric.of_tokens else text)) for name, metric in METRICS.items()}
    return Scores(measures=values, lines=len(hypotheses), signature=_signature(text[1]))


def _signature(references: Sequence[str]) -> str:
    """How the score `bleu` was computed, in sacrebleu's notation."""
    metric = bleu_metric(references, tokenized=False)
    metric.corpus_score([""], [[""]])  # it wants to have seen how many references there are
    return str(metric.get_signature())


def worst(hypotheses: Sequence[str], references: Sequence[str], count: int) -> list[tuple[int, float]]:
    """The rows of the translations with the lowest chrF, and that, the lowest first."""
    numbered = enumerate(sentence_chrf(hypotheses, references))
    return sorted(numbered, key=lambda scored: scored[1])[:count]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each line by itself."""
    metric = CHRF()
    lines = zip(hypotheses, references, strict=True)
    return [float(metric.sentence_score(ours, [theirs]).score) for ours, theirs in lines]


def detokenized(lines: Sequence[str], language: str) -> list[str]:
    """Tokenised lines as one would write them, HTML escapes such as &apos; resolved."""
    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split(" "), unescape=True) for line in lines]


def tokens_of(lines: Sequence[str], references: Sequence[str], language: str) -> list[str]:
    """Lines as people write them, as tokens with spaces between.

    They are those of Moses or, since it cuts at spaces alone, those of sacrebleu where the references have none.
    """
    if bleu_tokenizer(references) != "13a":
        return list(map(bleu_metric(references, tokenized=False).tokenizer, lines))
    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True, escape=False) for line in lines]
