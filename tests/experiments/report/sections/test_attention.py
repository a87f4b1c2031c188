from __future__ import annotations

import json
import math

from qknorm.experiments.report.sections.attention import readable
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
                assert all(
                    0 <= value <= math.log2(sizes[keys]) + 0.01 for layer in result["entropy"] for value in layer
                )


def test_pieces_are_shown_as_one_reads_them() -> None:
    assert readable(["▁The", "▁h", "ouse", "▁", "</s>"], "raw") == [
        ("The", "word"), ("h", "word"), ("ouse", "inside"), ("␣", "word"), ("(end)", "special"),
    ]  # fmt: skip
    assert readable(["The</w>", "h", "ouse</w>", "</s>"], "words") == [
        ("The", "word"), ("h", "word"), ("ouse", "inside"), ("(end)", "special"),
    ]  # fmt: skip
