from __future__ import annotations

from pathlib import Path

from docs.recipes import reference

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"


def test_the_page_is_what_the_code_generates() -> None:
    hint = "make it anew: python docs/recipes.py > docs/recipes.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), hint


def test_every_row_of_a_table_is_one_line() -> None:
    """Also where the docstring of a key is longer than that."""
    assert all(row.endswith(" |") for row in reference().splitlines() if row.startswith("| "))


def test_it_states_types_limits_and_defaults() -> None:
    rows = reference().splitlines()

    def stated(start: str) -> bool:
        return any(row.startswith(start) for row in rows)

    assert "| `norm` | `layer`, `scale` or `rms` | `layer` | `layer`, `scale` (one number per norm) or `rms`. |" in rows
    assert stated("| `scale_init` | number, `henry` or `comparable` | `henry` |")
    assert stated("| `bpe_dropout` | number ≥ 0, < 1 | `0.0` |")
    assert stated("| `baselines` |")
