"""How a comparison is put into words and digits: the same on the screen, in tables and in reports."""

from __future__ import annotations

from collections.abc import Sequence

from qknorm.evaluation.significance import Comparison

SIGNIFICANT = 0.05
TOO_SHORT = "Most lines are too short for BLEU, which needs four words or more: look at chrF."
FIRST_SEEDS = "Some systems have one seed so far, so of every system the first seed is compared."


def bleu_of(row: Comparison) -> str:
    """The score, with its standard deviation over seeds if there are several."""
    return f"{row.bleu:.2f}" + ("" if row.bleu_sd is None else f" ± {row.bleu_sd:.2f}")


def interval(low: float | None, high: float | None, signed: bool = False) -> str:
    """From low to high; nothing where it is not known."""
    if low is None or high is None:
        return ""
    return f"{low:+.2f} – {high:+.2f}" if signed else f"{low:.2f} – {high:.2f}"


def p_value(value: float | None, is_bound: bool) -> str:
    """0.047, or ≤ 0.001 where as many samples as were drawn cannot say less; nothing for the baseline."""
    if value is None:
        return ""
    if is_bound:
        return f"≤ {value:.2g}"
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def verdict(row: Comparison, first: str) -> str:
    """One sentence on whether a system differs from the first by more than chance."""
    assert row.difference is not None
    p = p_value(row.p_value, row.p_is_bound)
    numbers = (
        f"95 % interval {row.difference_low:+.2f} to {row.difference_high:+.2f}, p {'' if row.p_is_bound else '= '}{p}"
    )
    if not is_significant(row):
        return (
            f"{row.name} and {first} cannot be told apart: the difference of {row.difference:+.2f} BLEU may be chance "
            f"({numbers})."
        )
    kind = "better" if row.difference > 0 else "worse"
    return (
        f"{row.name} is {kind} than {first} by {abs(row.difference):.2f} BLEU, which is more than chance ({numbers})."
    )


def is_significant(row: Comparison) -> bool:
    return row.p_value is not None and row.p_value < SIGNIFICANT


def verdicts(rows: Sequence[Comparison]) -> list[str]:
    """For each system but the first, whether it differs from the first, and what that does not say.

    Nothing where the systems were not compared: what they are to be compared with has not been run.
    """
    first, *others = rows
    sentences = [verdict(row, first.name) for row in others if row.difference is not None]
    if sentences and first.first_seeds_only:
        sentences.append(FIRST_SEEDS)
    elif sentences and first.seeds == 1:
        sentences.append("Each was trained once: nothing is said about how another seed would have done.")
    return sentences


def about_interval(seeds: int) -> str:
    """What a 95 % interval is, for somebody who has never met one."""
    if seeds == 1:
        return (
            "where the number lies in 95 % of 1,000 test sets that are drawn from these sentences with replacement "
            "(bootstrap). It speaks of these trained models on other sentences of the same kind, not of models trained "
            "with another seed."
        )
    return (
        "where the number lies for other sentences of the same kind and other seeds: in 95 of 100 studies like this "
        f"one, the interval holds it (Student's t of {seeds} seeds, with the share of the sentences by bootstrap and "
        "degrees of freedom after Welch and Satterthwaite)."
    )


def about_p(comparisons: int, seeds: int = 1) -> str:
    """What a p-value is, and how it was corrected."""
    holm = f", corrected by Holm's method for {comparisons} comparisons, which intervals are not"
    method = "paired bootstrap" if seeds == 1 else "Student's t of the seeds, as in the interval"
    bound = " “≤” stands where no sample was as extreme." if seeds == 1 else ""
    return (
        "how often a difference of at least this size would come about by chance, were the two systems equally good; "
        f"below {SIGNIFICANT} is usually called significant ({method}{holm if comparisons > 1 else ''}).{bound}"
    )
