"""What can be expected of a translation: the chrF of dev lines by how probable a model finds its own translations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from qknorm.decoding.translator import Translator
from qknorm.evaluation.scores import sentence_chrf
from qknorm.runs.contents import Calibration

_LINES = 1000  # of a dev set: more would hardly move two numbers


def calibrated(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> Calibration:
    """A straight line through the lines of a dev set; a level one where probability tells nothing."""
    translations = [best for best, *_ in translator.translations(islice(sources, _LINES))]
    quality = sentence_chrf([best.text for best in translations], references[: len(translations)])
    return fitted([translator.probability(best) for best in translations], [chrf / 100 for chrf in quality])


def fitted(probabilities: Sequence[float], quality: Sequence[float]) -> Calibration:
    """By least squares. What is more probable is never expected to be worse."""
    x, y = np.asarray(probabilities), np.asarray(quality)
    variance = float(x.var())
    slope = max(float(((x - x.mean()) * y).mean()) / variance, 0.0) if variance else 0.0
    return Calibration(intercept=float(y.mean() - slope * x.mean()), slope=slope)
