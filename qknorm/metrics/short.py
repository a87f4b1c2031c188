"""Lines of which BLEU says nothing, such as those of a glossary."""

from __future__ import annotations

from collections.abc import Sequence

from qknorm.metrics.table import bleu_metric


def is_too_short_for_bleu(references: Sequence[str], tokenized: bool = False) -> bool:
    """Whether most lines have fewer words than BLEU's longest n-grams: of these none is there, so none can be right.

    The share of such lines decides, not the mean length: a few long lines would hide all the others.
    """
    metric = bleu_metric(references, tokenized)
    lengths = [len(metric.tokenizer(line).split()) for line in references]
    return sum(length < metric.max_ngram_order for length in lengths) > len(lengths) / 2
