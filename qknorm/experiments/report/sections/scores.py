"""How the systems did on their test sets, and whether they differ: tables of experiments, and whoever else there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from qknorm.evaluation import wording
from qknorm.experiments.report import words
from qknorm.experiments.report.charts import Interval, interval_chart
from qknorm.experiments.report.collect import TrainedTranslator
from qknorm.experiments.report.contests import Contest, Entry, Material, System
from qknorm.experiments.report.section import Figure, Section
from qknorm.experiments.views.scores import how_scored, number, rate_of
from qknorm.metrics.script import bleu_tokenizer


@dataclass(frozen=True)
class ScoreTable:
    contest: Contest
    columns: list[str]
    rows: list[tuple[Entry, list[str]]]
    """What stands beside each system."""
    figure: Figure
    verdicts: list[str]
    terms: list[tuple[str, str]]
    """What the columns mean."""


@dataclass(frozen=True)
class ScoresSection(Section):
    sentences: list[str]
    tables: list[ScoreTable]
    title = "Scores"

    def first_sentences(self) -> list[str]:
        return self.sentences

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        if not material.systems:
            return []
        shown = [experiment for experiment, _ in material.collection.experiments]
        sizes = dict.fromkeys(experiment.about.shrunk for experiment in shown)
        return [cls([*sizes, *_lead(material)], list(map(_table, material.contests)))]


def _table(contest: Contest) -> ScoreTable:
    cells = [_cells(entry) for entry in contest.entries]
    columns = [name for name in cells[0] if any(row[name] for row in cells)]
    rows = [(entry, [row[name] for name in columns]) for entry, row in zip(contest.entries, cells, strict=True)]
    is_said_above = not contest.about and len(rows) <= 2  # of two systems the head of the page says it
    sentences = [] if is_said_above else contest.compared.sentences
    terms = _terms(contest, columns)
    return ScoreTable(contest, ["system", *columns], rows, _figure(contest), sentences, terms)


def _cells(entry: Entry) -> dict[str, str]:
    """What stands in each column; one in which nothing stands is left out."""
    row, published = entry.compared, entry.published
    return {
        "BLEU": wording.bleu_of(row),
        "95 %": wording.interval(row.low, row.high),
        "difference": number(row.difference, signed=True),
        "95 % of it": wording.interval(row.difference_low, row.difference_high, signed=True),
        "p": wording.p_value(row.p_value, row.p_is_bound),
        "paper": number(published.paper) if published else "",
        "its difference": number(published.paper_difference, signed=True) if published else "",
        "chrF": f"{entry.mean('chrf'):.1f}",
        "TER": f"{entry.mean('ter'):.1f}",
        "seeds": str(row.seeds) if row.seeds > 1 else "",
        "rate": rate_of(published) if published else "",
    }


def _terms(contest: Contest, columns: Sequence[str]) -> list[tuple[str, str]]:
    counted = "words" if bleu_tokenizer(contest.references) == "13a" else "characters"
    meanings = {
        "BLEU": (
            f"how many {counted}, and sequences of up to four {counted}, are those of a human translation: 0 is none, "
            f"100 all. Higher is better. Here it is {how_scored(contest.as_tokens)}."
        ),
        "95 %": wording.about_interval(contest.compared.rows[0].seeds),
        "difference": f"to {contest.compared.rows[0].name}, which the others are compared with.",
        "p": wording.about_p(len(contest.entries) - 1, contest.compared.rows[0].seeds),
        "paper": "the published score; its difference is to the same system.",
        "chrF": "the same idea as BLEU with letters instead of words: 0 to 100, higher is better.",
        "TER": "how many words of 100 somebody would have to change. Lower is better.",
        "seeds": "how often each system was trained; ± is the standard deviation over them.",
        "rate": "the learning rate that was best on the dev set, of this many that were tried.",
    }
    return [(term, meaning) for term, meaning in meanings.items() if term in columns]


def _figure(contest: Contest) -> Figure:
    intervals = [
        Interval(entry.compared.name, entry.compared.low, entry.compared.bleu, entry.compared.high, entry.system.number)
        for entry in contest.entries
    ]
    return Figure(
        "BLEU on the test set",
        "Each mark is a score, further right is better; the bar is its 95 % interval.",
        interval_chart(intervals, "BLEU", "BLEU on the test set with 95 % intervals"),
    )


def _lead(material: Material) -> list[str]:
    """What was trained, and how it did."""
    untested = [run for system in material.systems for run in system.runs if not run.tests]
    several = len(material.contests) > 1
    return [
        _trained(material.systems),
        *(_best(contest, several) for contest in material.contests),
        *map(_state, untested),
    ]


def _trained(systems: Sequence[System]) -> str:
    directions = dict.fromkeys(
        " → ".join(direction.languages) for system in systems for direction in system.first.recipe.data.directions
    )
    sizes = sorted({sum(direction.kept for direction in system.first.corpus.pairs) for system in systems})
    size = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    were = "was" if len(systems) == 1 else "were"
    seeds = {len(system.runs) for system in systems}
    each = "" if seeds == {1} else f", each with {max(seeds)} seeds" if len(seeds) == 1 else ", some with several seeds"
    translators = words.counted(len(systems), "translator")
    sentence = f"{translators} ({', '.join(directions)}) {were} trained on {size} pairs of sentences{each}."
    if len(systems) > words.FEW:
        return sentence
    kinds = "; ".join(f"{system.name}: {words.attention(system.first.recipe.model)}" for system in systems)
    return f"{sentence} {kinds}."


def _best(contest: Contest, several: bool) -> str:
    """Who did best and, where there are two, whether they differ."""
    where = f" ({contest.title})" if several or contest.about else ""
    best = contest.best
    score = f"{best.mean('chrf'):.1f} chrF" if contest.compared.is_too_short else f"{best.compared.bleu:.2f} BLEU"
    of_all = " reached the highest score," if len(contest.entries) > 1 else " reached"
    sentence = (
        f"On {len(contest.references):,} test sentences that were kept out of training{where}, {best.compared.name}"
        f"{of_all} {score}."
    )
    if len(contest.entries) != 2 and not contest.compared.is_too_short:
        return sentence
    return " ".join([sentence, *contest.compared.sentences])


def _state(run: TrainedTranslator) -> str:
    """Of a run that has not been tested, how far it is."""
    last = run.validations[-1] if run.validations else None
    state = f"after update {last.step:,}" if last else "before its first validation"
    score = f" (dev BLEU {last.dev_bleu:.1f})" if last and last.dev_bleu is not None else ""
    return f"{run.name} has not been tested: what is shown is its state {state}{score}."
