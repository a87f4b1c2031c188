"""The numbers that docs/mathematics.md states, against the library."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import pytest
import torch

from qknorm import comparable_scale, henry_scale, lp_normalize, qk_attention_weights

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "mathematics.md").read_text(encoding="utf-8")


def row(title: str) -> list[float]:
    """A row of the page's table."""
    (cells,) = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", PAGE, re.MULTILINE)
    return [float(cell) for cell in cells.split("|")]


def rounded_alike(stated: float, result: float) -> bool:
    """The page rounds to three digits."""
    return float(f"{result:.3g}") == pytest.approx(stated, rel=1e-9)


def test_the_largest_product_is_reached_and_not_passed() -> None:
    vectors = torch.cat([torch.randn(200, 64), torch.ones(1, 64), torch.eye(64)[:1]]).double()
    for p, stated in zip(row("p"), row("largest possible q̂·k̂"), strict=True):
        unit = lp_normalize(vectors, p)
        assert rounded_alike(stated, float((unit @ unit.T).abs().max()))


def test_the_spread_is_what_gaussian_vectors_give() -> None:
    q, k = torch.randn(2, 50_000, 64).unbind(0)
    spread = [float((lp_normalize(q, p) * lp_normalize(k, p)).sum(-1).std()) for p in row("p")]
    for stated, result in zip(row("spread of q̂·k̂, relative to p = 2"), spread, strict=True):
        assert result / spread[2] == pytest.approx(stated, rel=0.05)


def test_the_comparable_starts() -> None:
    starts = zip(row("p"), row("comparable g"), row("spread of q̂·k̂, relative to p = 2"), strict=True)
    for p, stated, spread in starts:
        assert rounded_alike(stated, comparable_scale(p, 64, 8.0))
        assert stated * spread == pytest.approx(8.0, rel=0.02)


def test_how_much_weight_one_of_75_keys_can_have() -> None:
    query, keys = torch.eye(75, dtype=torch.float64)[None, :1], torch.eye(75, dtype=torch.float64)[None]

    def largest(g: float, keys: torch.Tensor = keys) -> float:
        return float(qk_attention_weights(query, keys, g)[0, 0, 0])

    opposite = torch.cat([query, -query.expand(1, 74, 75)], 1)
    assert round(largest(1.0), 3) == 0.035
    assert round(largest(1.0, opposite), 3) == 0.091
    assert largest(math.log(75**2 - 75)) == pytest.approx(75 / 76)
    assert round(henry_scale(75), 2) == 12.44
    assert round(largest(henry_scale(75)), 4) == 0.9997
    for stated in ("0.035", "0.091", "L / (L + 1)", "12.44", "0.9997"):
        assert stated in PAGE


def test_the_pictures_can_be_drawn(tmp_path: Path) -> None:
    runpy.run_path(str(DOCS / "pictures" / "draw.py"))["draw"](tmp_path)
    drawn = sorted(tmp_path.iterdir())
    assert [path.name for path in drawn] == ["alpha_start.png", "bounds.png", "saturation.png", "unit_balls.png"]
    assert all(path.stat().st_size < 150_000 for path in drawn)
