from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from qknorm import Translator
from qknorm.data.textfiles import read_lines
from qknorm.evaluation.scores import sentence_chrf
from qknorm.training.calibration import fitted


@pytest.mark.parametrize(
    ("probabilities", "quality", "expected"),
    [
        ([0.2, 0.4, 0.6], [0.3, 0.4, 0.5], [0.2, 0.4, 0.7]),
        ([0.2, 0.4, 0.6], [0.1, 0.6, 1.1], [0.0, 0.6, 1.0]),
        ([0.2, 0.4, 0.6], [0.6, 0.5, 0.4], [0.5, 0.5, 0.5]),
        ([0.5, 0.5], [0.2, 0.4], [0.3, 0.3, 0.3]),
    ],
    ids=["a line", "no more than 1, no less than 0", "never worse by being more probable", "nothing to tell by"],
)
def test_what_is_expected_of_a_probability(
    probabilities: list[float], quality: list[float], expected: list[float]
) -> None:
    calibration = fitted(probabilities, quality)
    assert [calibration.expected(x) for x in (0.0, 0.4, 1.0)] == pytest.approx(expected)


def test_a_run_knows_how_good_its_translations_are(trained_run: Path) -> None:
    """On its dev set the mean is that of chrF, and what it is less sure of is worse, on the test set, too."""
    translator, folder = Translator.load(trained_run), trained_run.parents[1]
    for split in ("dev", "test"):
        sources, references = ([*read_lines(folder / f"{split}.{side}")] for side in (0, 1))
        made = [best for (best,) in translator.translations(sources)]
        quality = [chrf / 100 for chrf in sentence_chrf([best.text for best in made], references)]
        told = [translator.confidence(best) or 0.0 for best in made]
        if split == "dev":
            assert fmean(told) == pytest.approx(fmean(quality), abs=0.02)
        order = sorted(range(len(made)), key=told.__getitem__)
        worse, better = (fmean(quality[row] for row in half) for half in (order[:50], order[50:]))
        assert worse < better - 0.05
