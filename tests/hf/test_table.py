from __future__ import annotations

from pathlib import Path

from qknorm import hf


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/hugging-face.md").read_text(encoding="utf-8")
    assert hf.conventions_table() in page
