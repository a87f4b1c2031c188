"""What a report says in sentences, for somebody who has not read the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qknorm.evaluation.significance import Comparison
from qknorm.experiments.report.collect import LanguageRun
from qknorm.experiments.report.contests import Contest, System
from qknorm.runs.language_recipe import GPTRecipe
from qknorm.runs.recipe import ModelRecipe

_SIGNIFICANT = 0.05
_FEW = 3
_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")

REASONS = {
    "duplicate": "the same pair stands earlier in the text",
    "also in dev or test": "the pair is also in the dev or test set, where it would be known by heart",
    "source equals target": "both sides are the same: it was not translated",
    "lengths too different": "one side is more than six times as long as the other",
    "too long": "a side has more than 2,000 characters: a paragraph that nobody split",
    "control character": "there are characters in it that no text should have",
    "source blank": "the source is blank",
    "target blank": "the translation is blank",
    "both sides blank": "both sides are blank",
}


def heading(names: Sequence[str], folder: str) -> str:
    """The names of what is shown, or that of the folder if they are many."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) if len(names) <= _FEW else folder


def counted(count: int, thing: str) -> str:
    """Two translators, 28,995 pairs."""
    shown = _COUNTS[count] if count < len(_COUNTS) else f"{count:,}"
    return f"{shown} {thing}{'' if count == 1 else 's'}"


def attention(model: ModelRecipe | GPTRecipe) -> str:
    kind = model.attention if isinstance(model, ModelRecipe) else model.qk_norm
    return {
        "lp": f"queries and keys normalised, p = {model.p:g}",
        "rms": "queries and keys by RMSNorm",
        "layer": "queries and keys by LayerNorm",
    }.get(kind, "plain scaled dot products")


def about_translators(systems: Sequence[System], contests: Sequence[Contest]) -> list[str]:
    """What was trained, and how it did."""
    pairs = list(
        dict.fromkeys(" → ".join(pair.languages) for system in systems for pair in system.first.recipe.data.all_pairs)
    )
    sizes = sorted({sum(pair.kept for pair in system.first.corpus.pairs) for system in systems})
    size = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    were = "was" if len(systems) == 1 else "were"
    seeds = {len(system.runs) for system in systems}
    each = "" if seeds == {1} else f", each with {max(seeds)} seeds" if len(seeds) == 1 else ", some with several seeds"
    found = [
        f"{counted(len(systems), 'translator')} ({', '.join(pairs)}) {were} trained on {size} pairs of sentences{each}."
    ]
    if len(systems) <= _FEW:
        found[0] += (
            " " + "; ".join(f"{system.name}: {attention(system.first.recipe.model)}" for system in systems) + "."
        )
    for contest in contests:
        where = f" ({contest.title})" if len(contests) > 1 else ""
        test = f"{len(contest.references):,} test sentences that were kept out of training{where}"
        best = contest.best
        of_all = " reached the highest score," if len(contest.entries) > 1 else " reached"
        sentences = [f"On {test}, {best.system.name}{of_all} {best.compared.bleu:.2f} BLEU."]
        if len(contest.entries) == 2:
            sentences += verdicts(contest)
        found.append(" ".join(sentences))
    untested = [run for system in systems for run in system.runs if not run.tests]
    for run in untested:
        last = run.validations[-1] if run.validations else None
        state = f"after update {last.step:,}" if last else "before its first validation"
        score = f" (dev BLEU {last.dev_bleu:.1f})" if last and last.dev_bleu is not None else ""
        found.append(f"{run.name} has not been tested: what is shown is its state {state}{score}.")
    return found


def verdicts(contest: Contest) -> list[str]:
    """For each system but the first, whether it differs from the first by more than chance."""
    first, *others = contest.entries
    found = [_verdict(entry.compared, first.compared.name) for entry in others]
    if contest.first_seeds_only:
        found.append("Some systems have one seed so far, so of every system the first seed is compared.")
    elif others and first.compared.seeds == 1:
        found.append("Each was trained once: with another seed the scores would be somewhat different.")
    return found


def _verdict(row: Comparison, first: str) -> str:
    assert row.difference is not None
    assert row.p_value is not None
    numbers = f"95 % interval {row.difference_low:+.2f} to {row.difference_high:+.2f}, p = {row.p_value:.3f}"
    if row.p_value >= _SIGNIFICANT:
        return (
            f"{row.name} and {first} cannot be told apart: the difference of {row.difference:+.2f} BLEU may be chance "
            f"({numbers})."
        )
    kind = "better" if row.difference > 0 else "worse"
    return (
        f"{row.name} is {kind} than {first} by {abs(row.difference):.2f} BLEU, which is more than chance ({numbers})."
    )


def about_best(runs: Sequence[LanguageRun]) -> str:
    """One sentence on how well the best of several language models predicts."""
    run = min(runs, key=lambda run: math.inf if run.best_loss is None else run.best_loss)
    if run.best_loss is None:
        return "There is no validation yet."
    what = "a validation loss of" if len(runs) == 1 else "the lowest validation loss,"
    choices = math.exp(run.best_loss) if run.best_loss < 20 else math.inf
    return (
        f"{run.name} ({attention(run.recipe.model)}) reached {what} {run.best_loss:.3f}: it is as unsure "
        f"of the next character as if it had to choose among {choices:.1f} equally likely ones."
    )
