from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from qknorm.experiments.report import write_report
from tests.contents import validation, write_metrics
from tests.reports import Page

LANGUAGE = """
task: language
name: letters
data: {file: text}
model: {layers: 2, heads: 1, dim: 8, context: 8}
"""


def test_a_language_model(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(LANGUAGE)
    (folder / "corpus.json").write_text(json.dumps({"characters": 1000, "lines": 10, "sha256": "0"}))
    layer = {"entropy": [0.5], "saturated": [0.25], "largest_logit": [3.0], "bound": [12.0]}
    scales = {"blocks.0.attention": 12.0, "blocks.1.attention": [11.0, 12.0]}
    seen: dict[str, Any] = {"attention": [layer, layer], "scales": scales}
    losses = {10: 3.0, 20: math.log(8)}
    write_metrics(folder, *(validation(step, measures={"val_loss": loss}, **seen) for step, loss in losses.items()))
    write_report(folder, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "as if it had to choose among 8.0 equally likely ones" in text
    for title in ("Validation loss", "g of each layer", "How spread out attention is", "How much of the range is used"):
        assert title in text
