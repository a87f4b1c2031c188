from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

from qknorm.experiments.report import write_report
from qknorm.experiments.report.sections.attention import readable
from qknorm.models.translator import TAUGHT_HEAD
from tests.reports import Page


def test_every_attention_weight_is_in_the_page(html: str) -> None:
    for system in json.loads(Page(html).data):
        for sentence in system["sentences"]:
            sizes = {"source": len(sentence["source"]), "target": len(sentence["target"])}
            assert len(sentence["read"]) == sizes["target"]
            for kind, (queries, keys) in {
                "encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source"),
            }.items():  # fmt: skip
                result = sentence["maps"][kind]
                layers, heads = (1 if kind == "encoder" else 2), 4
                assert result["shape"] == [layers, heads, sizes[queries], sizes[keys]]
                assert len(result["weights"]) == math.ceil(math.prod(result["shape"]) / 3) * 4
                assert len(result["entropy"]) == layers
                assert all(0 <= value <= 1 for layer in result["entropy"] for value in layer)


def test_a_head_that_was_taught_alignments_is_named(html: str, trained_run: Path, tmp_path: Path) -> None:
    assert {system["taught"] for system in json.loads(Page(html).data)} == {None}
    assert "taught to align words" not in Page(html).text
    shutil.copytree(trained_run, tmp_path / "taught")
    recipe = tmp_path / "taught" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("taught: 0", "taught: 5"))
    write_report(tmp_path / "taught", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [system["taught"] for system in json.loads(page.data)] == [TAUGHT_HEAD]
    assert "A head that was taught to align words looks at the word that it translates." in page.text


def test_pieces_are_shown_as_one_reads_them() -> None:
    assert readable(["▁The", "▁h", "ouse", "▁", "</s>"], "raw") == [
        ("The", "word"), ("h", "word"), ("ouse", "inside"), ("␣", "word"), ("(end)", "special"),
    ]  # fmt: skip
    assert readable(["The</w>", "h", "ouse</w>", "</s>"], "words") == [
        ("The", "word"), ("h", "word"), ("ouse", "inside"), ("(end)", "special"),
    ]  # fmt: skip
