"""The picture with which docs/results.md begins, and where its numbers are from."""

from __future__ import annotations

from pathlib import Path

import yaml

from benchmarks.answers import MEASURED, draw


def test_its_numbers_are_those_of_the_pages_that_it_names() -> None:
    for line in yaml.safe_load((MEASURED / "answers.yaml").read_text(encoding="utf-8")):
        page = (MEASURED / line["source"].partition("#")[0]).read_text(encoding="utf-8").replace("−", "-")
        low, high = line["low"], line["high"]
        assert any(
            f"{low:+g}{dash}{high:+g}" in page or f"{low:+.2f}{dash}{high:+.2f}" in page for dash in (" – ", " to ")
        )


def test_it_is_drawn(tmp_path: Path) -> None:
    draw(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["answers.png"]
