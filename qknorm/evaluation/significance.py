"""Whether a difference in BLEU means anything: paired tests through sacrebleu."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from qknorm.errors import InputError

Method = Literal["bootstrap", "randomization"]

_SAMPLES = {"bootstrap": 1000, "randomization": 10_000}
_SHORT = {"bootstrap": "bs", "randomization": "ar"}


@dataclass(frozen=True)
class Comparison:
    """One system: its BLEU, the 95 % interval of it by bootstrap, and the p-value against the first system."""

    name: str
    bleu: float
    low: float
    high: float
    p_value: float | None


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], tokenized: bool, method: Method = "bootstrap"
) -> list[Comparison]:
    """Compare systems with the first of them, the baseline, on the same sentences.

    bootstrap: paired bootstrap resampling (Koehn 2004), 1,000 samples. randomization: approximate randomisation
    (Riezler and Maxwell 2005), 10,000 trials. Both from a fixed seed. Intervals are always from the bootstrap.
    """
    if len(systems) < 2:
        raise InputError("a comparison needs at least two systems")
    for name, lines in systems.items():
        if len(lines) != len(references):
            raise InputError(f"{name} has {len(lines):,} lines but there are {len(references):,} references")
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # it reports every step as a warning
    by_bootstrap = _test(systems, references, tokenized, "bootstrap")
    p_values = by_bootstrap if method == "bootstrap" else _test(systems, references, tokenized, method)
    return [
        Comparison(name, result.score, float(result.mean - result.ci), float(result.mean + result.ci), tested.p_value)
        for name, result, tested in zip(systems, by_bootstrap, p_values, strict=True)
    ]


def _test(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], tokenized: bool, method: Method
) -> list[Any]:
    metric = BLEU(tokenize="none", force=True) if tokenized else BLEU()
    test = PairedTest(
        [(name, list(lines)) for name, lines in systems.items()],
        {"BLEU": metric},
        [list(references)],
        _SHORT[method],
        _SAMPLES[method],
    )
    _, results = test()
    found: list[Any] = results["BLEU"]
    return found
