"""The metrics by the names that recipes, scores.json and metrics.jsonl know them by. A new one is its line here."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from qknorm.metrics.metric import Metric, Sacrebleu
from qknorm.metrics.script import bleu_tokenizer


def bleu_metric(references: Sequence[str], tokenized: bool) -> BLEU:
    """BLEU of text as it stands if it is tokenised (Moses multi-bleu), else sacrebleu's for the references' script."""
    if tokenized:
        return BLEU(tokenize="none", smooth_method="none", force=True)
    return BLEU(tokenize=bleu_tokenizer(references))


def is_too_short_for_bleu(references: Sequence[str], tokenized: bool = False) -> bool:
    """Whether most lines have fewer words than BLEU's longest n-grams: of these none is there, so none can be right.

    The share of such lines decides, not the mean length: a few long lines would hide all the others.
    """
    metric = bleu_metric(references, tokenized)
    lengths = [len(metric.tokenizer(line).split()) for line in references]
    return sum(length < metric.max_ngram_order for length in lengths) > len(lengths) / 2


METRICS: dict[str, Metric] = {
    "bleu": Sacrebleu("BLEU", make=bleu_metric),
    "bleu_tokenized": Sacrebleu(
        "BLEU of tokens", of_tokens=True, make=lambda references, _: bleu_metric(references, tokenized=True)
    ),
    # Spaces do not count in chrF, so tokenised text scores alike.
    "chrf": Sacrebleu("chrF", make=lambda *_: CHRF()),
    "chrf++": Sacrebleu("chrF++", make=lambda *_: CHRF(word_order=2)),
    "ter": Sacrebleu("TER", more_is_better=False, make=lambda *_: TER()),
}
