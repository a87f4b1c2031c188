"""Every comparison of QKNorm with its baseline in one picture, which docs/results.md begins with.

    python -m benchmarks.answers

It reads docs/measured/answers.yaml, whose numbers are those of the pages that it names.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from qknorm.experiments.views.scores import Row, draw_rows

MEASURED = Path(__file__).parents[1] / "docs/measured"


def comparisons() -> list[Row]:
    """In the order of the file."""
    content = yaml.safe_load((MEASURED / "answers.yaml").read_text(encoding="utf-8"))
    return [
        Row(
            corpus=line["text"],
            system=f"{line['text']}, {line['setting']}",
            paper_difference=line.get("paper"),
            difference=line["difference"],
            low=line["low"],
            high=line["high"],
            seeds=line["seeds"],
        )
        for line in content
    ]


def draw(folder: Path) -> None:
    title = "QKNorm + LayerNorm against the first paper's baseline"
    drawn = draw_rows(comparisons(), "the baseline", title, folder / "answers")
    for kind in (".svg", ".pdf"):
        drawn.with_suffix(kind).unlink()  # the page shows the PNG


if __name__ == "__main__":
    draw(MEASURED)
