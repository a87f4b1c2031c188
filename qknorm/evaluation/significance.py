"""Whether a difference in BLEU means anything: for systems of one trained model, or of several seeds each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from qknorm.errors import InputError
from qknorm.evaluation.intervals import Flags, Floats, measured, share
from qknorm.metrics.table import bleu_metric

Method = Literal["bootstrap", "randomization"]
Counts = NDArray[np.int64]

_SEED = 12345
_SAMPLES = 1000  # of the bootstrap
_TRIALS = 10_000  # of the randomisation


@dataclass(frozen=True)
class Comparison:
    """One system against the first, the baseline.

    The interval of one seed is where a number lies in 95 % of the bootstrap's samples: for this trained model, had
    there been other test sentences of the same kind. That of several seeds is for other seeds, too (Student's t).
    """

    name: str
    bleu: float
    """The mean over its seeds."""
    low: float
    high: float
    p_value: float | None = None
    """Of the difference from the baseline, after Holm where there are several; None for the baseline itself."""
    p_is_bound: bool = False
    """No sample was as extreme: all that can be said is that p is at most this."""
    seeds: int = 1
    bleu_sd: float | None = None
    """The standard deviation over seeds, if there are several."""
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    first_seeds_only: bool = False
    """Some systems have one seed, so of every system the first is compared."""


def compare(
    systems: Mapping[str, Sequence[Sequence[str]]],
    references: Sequence[str],
    tokenized: bool,
    method: Method = "bootstrap",
    samples: int = _SAMPLES,
    trials: int = _TRIALS,
) -> list[Comparison]:
    """Compare systems with the first of them on the same sentences. A system is a list of runs, one for each seed.

    bootstrap: paired bootstrap resampling of the sentences (Koehn 2004). Where there are several seeds, its variance is
    one part of Student's t, and how the seeds vary the other: see `intervals.measured`.
    randomization: approximate randomisation (Riezler and Maxwell 2005). The outputs of two models are exchanged for
    single sentences; where there are several seeds, whole runs are exchanged between the systems.
    Intervals never depend on the method. Everything is drawn from a fixed seed. Where several systems are compared
    with the first, their p-values are corrected by Holm's method: among many, one is sure to look different.
    """
    if len(systems) < 2:
        raise InputError("a comparison needs at least two systems")
    return _corrected(_rows(systems, references, tokenized, method, samples, trials))


def standings(
    systems: Mapping[str, Sequence[Sequence[str]]],
    references: Sequence[str],
    tokenized: bool,
    method: Method = "bootstrap",
) -> list[Comparison]:
    """What tables and reports say of the systems that were tested on the same sentences, however many there are.

    A single one is measured; several are compared with the first. Where some have one seed and others several, the
    first seed of each is taken: one seed says nothing about how seeds vary.
    """
    first_seeds_only = len({len(runs) == 1 for runs in systems.values()}) > 1
    if first_seeds_only:
        systems = {name: runs[:1] for name, runs in systems.items()}
    if len(systems) == 1:
        return _rows(systems, references, tokenized, method, _SAMPLES, 0)
    rows = compare(systems, references, tokenized, method)
    return [replace(row, first_seeds_only=first_seeds_only) for row in rows]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the smallest times n, the next times n − 1, …, never falling."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _corrected(rows: Sequence[Comparison]) -> list[Comparison]:
    first, *others = rows
    p_values = holm([row.p_value for row in others if row.p_value is not None])
    return [first, *(replace(row, p_value=p_value) for row, p_value in zip(others, p_values, strict=True))]


def _rows(
    systems: Mapping[str, Sequence[Sequence[str]]],
    references: Sequence[str],
    tokenized: bool,
    method: Method,
    samples: int,
    trials: int,
) -> list[Comparison]:
    _check(systems, references)
    metric = bleu_metric(references, tokenized)
    counts = [np.stack([_statistics(lines, references, metric) for lines in runs]) for runs in systems.values()]

    def score(counted: Counts) -> float:
        correct, total, (hypothesis, reference) = counted[:4], counted[4:8], counted[8:]
        return BLEU.compute_bleu(
            correct.tolist(), total.tolist(), int(hypothesis), int(reference), smooth_method=metric.smooth_method
        ).score

    scores = [np.array([score(run.sum(0)) for run in runs]) for runs in counts]
    first, *others = map(_System, systems, counts, scores, _bootstrap(counts, score, samples))
    rows = [_alone(first)]
    for system in others:
        row = _against(first, system)
        if method == "randomization":
            extreme = _by_exchange(first, system, score, trials)
            row = replace(row, p_value=share(extreme), p_is_bound=not extreme.any())
        rows.append(row)
    return rows


class _System(NamedTuple):
    name: str
    counts: Counts
    """(seeds, sentences, 10)"""
    scores: Floats
    """(seeds,)"""
    resampled: Floats
    """(samples, seeds): the scores on other sentences, the same for all systems."""


def _alone(system: _System) -> Comparison:
    seeds, sentences = system.counts.shape[:2]
    value, low, high, *_ = measured([system.scores], [system.resampled], sentences)
    spread = float(system.scores.std(ddof=1)) if seeds > 1 else None
    return Comparison(system.name, value, low, high, seeds=seeds, bleu_sd=spread)


def _against(first: _System, system: _System) -> Comparison:
    sentences = system.counts.shape[1]
    between = measured([system.scores, -first.scores], [system.resampled, -first.resampled], sentences)
    return replace(
        _alone(system),
        p_value=between.p_value,
        p_is_bound=between.p_is_bound,
        difference=between.value,
        difference_low=between.low,
        difference_high=between.high,
    )


def _check(systems: Mapping[str, Sequence[Sequence[str]]], references: Sequence[str]) -> None:
    if not references:
        raise InputError("there is nothing to compare: the references are empty")
    for name, runs in systems.items():
        for lines in runs:
            if len(lines) != len(references):
                raise InputError(f"{name} has {len(lines):,} lines but there are {len(references):,} references")
    single = [name for name, runs in systems.items() if len(runs) == 1]
    several = [name for name, runs in systems.items() if len(runs) > 1]
    if single and several:
        raise InputError(
            f"{single[0]} has one run but {several[0]} has several; without a second seed nothing is known about the "
            "variation of the first, so give each system one run, or each at least two"
        )


def _statistics(lines: Sequence[str], references: Sequence[str], metric: BLEU) -> Counts:
    """(sentences, 10): n-grams matched and in all, n = 1 … 4, the two lengths. The sum over sentences gives BLEU."""
    rows = []
    for line, reference in zip(lines, references, strict=True):
        score: Any = metric.corpus_score([line], [[reference]])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.int64)


def _bootstrap(measured: Sequence[Counts], score: Callable[[Counts], float], samples: int) -> list[Floats]:
    """For each system (samples, seeds): the BLEU of its runs had there been other sentences, the same for all."""
    rng = np.random.default_rng(_SEED)
    sentences = measured[0].shape[1]
    sampled = [np.empty((samples, len(runs))) for runs in measured]
    for sample in range(samples):
        times = np.bincount(rng.integers(sentences, size=sentences), minlength=sentences)
        for system, runs in zip(sampled, measured, strict=True):
            system[sample] = [score(times @ run) for run in runs]
    return sampled


def _by_exchange(first: _System, second: _System, score: Callable[[Counts], float], trials: int) -> Flags:
    """In which trials chance did as much."""
    if len(first.scores) > 1:
        return _by_exchanged_runs(first.scores, second.scores, trials)
    return _by_exchanged_sentences(first.counts[0], second.counts[0], score, trials)


def _by_exchanged_sentences(first: Counts, second: Counts, score: Callable[[Counts], float], trials: int) -> Flags:
    rng = np.random.default_rng(_SEED)
    sums, change = (first.sum(0), second.sum(0)), second - first
    difference = abs(score(sums[1]) - score(sums[0]))
    differences = np.empty(trials)
    for trial in range(trials):
        moved = rng.integers(2, size=len(first)) @ change
        differences[trial] = abs(score(sums[1] - moved) - score(sums[0] + moved))
    extreme: Flags = differences >= difference
    return extreme


def _by_exchanged_runs(first: Floats, second: Floats, trials: int) -> Flags:
    rng = np.random.default_rng(_SEED)
    scores, difference = np.concatenate([first, second]), abs(second.mean() - first.mean())
    dealt = rng.permuted(np.tile(scores, (trials, 1)), axis=1)
    differences = np.abs(dealt[:, len(first) :].mean(1) - dealt[:, : len(first)].mean(1))
    extreme: Flags = differences >= difference - 1e-9  # the same runs in another order may differ by rounding
    return extreme
