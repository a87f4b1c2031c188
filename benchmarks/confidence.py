"""Does a translator know how good its translations are? chrF by tenths of confidence, as numbers and as a picture.

    python -m benchmarks.confidence RUN SOURCE REFERENCES [RUN SOURCE REFERENCES …] -o NAME

writes NAME.json and NAME.png. Of each text, lines with even numbers calibrate and the others, which are shown, test.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from scipy import stats

from qknorm import Translator
from qknorm.data.textfiles import read_lines
from qknorm.evaluation.scores import sentence_chrf
from qknorm.experiments.figures import STYLE, legend_below, look, panels
from qknorm.training.calibration import fitted


def main() -> None:
    parser = argparse.ArgumentParser(description="chrF by tenths of confidence.")
    parser.add_argument("texts", nargs="+", type=Path, metavar="RUN SOURCE REFERENCES", help="three for each curve")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the beginning of both files' names")
    arguments = parser.parse_args()
    triples = zip(*(arguments.texts[start::3] for start in range(3)), strict=True)
    results = [measured(*triple) for triple in triples]
    arguments.output.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(results, arguments.output.with_suffix(".png"))


def measured(run: Path, source: Path, references: Path) -> dict[str, Any]:
    """How far confidence is from chrF, line by line, and both in each tenth of the lines."""
    translator = Translator.load(run)
    made = [best for best, *_ in translator.translations(read_lines(source))]
    probability = np.array([translator.probability(best) for best in made])
    chrf = np.array(sentence_chrf([best.text for best in made], list(read_lines(references)))) / 100
    calibration = fitted(probability[1::2].tolist(), chrf[1::2].tolist())
    probability, chrf = probability[::2], chrf[::2]
    confidence = np.array([calibration.expected(value) for value in probability.tolist()])
    tenths = np.array_split(np.argsort(probability), 10)
    return {
        "run": run.name,
        "text": f"{source.parent.name}/{source.name}",
        "lines": len(chrf),
        "rank_correlation": round(float(stats.spearmanr(probability, chrf).statistic), 3),
        "squared_error": {
            "of confidence": round(fmean((confidence - chrf) ** 2), 4),
            "of the mean probability": round(fmean((probability - chrf) ** 2), 4),
            "of one number for all": round(float(chrf.var()), 4),
        },
        "tenths": {
            "confidence": [round(fmean(confidence[tenth]), 3) for tenth in tenths],
            "probability": [round(fmean(probability[tenth]), 3) for tenth in tenths],
            "chrf": [round(fmean(chrf[tenth]), 3) for tenth in tenths],
        },
    }


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """A panel for each text."""
    with mpl.rc_context(STYLE):
        names = [result["text"] for result in results]
        figure, grid = panels(["mean chrF of a tenth of the lines"], names, "mean confidence", (3.2 * len(names), 3.2))
        for axis, result in zip(grid[0], results, strict=True):
            tenths = result["tenths"]
            axis.plot(tenths["confidence"], tenths["chrf"], **look(0), label="calibrated")
            axis.plot(
                tenths["probability"], tenths["chrf"], **look(1), linestyle=":", label="mean probability as it is"
            )
            axis.axline((0.5, 0.5), slope=1, color="grey", linewidth=0.8, label="as expected")
            axis.set(xlim=(0, 1), ylim=(0, 1))
        legend_below(figure, 3)
        figure.savefig(path, dpi=150, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
