from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.cleaning import CleaningReport, Rules, clean
from qknorm.data.importers import Pair
from qknorm.data.pipeline import TextPipeline
from qknorm.data.textfiles import read_lines

GOOD = Pair("The house is red.", "A casa é vermella.")


def cleaned(
    pairs: Iterable[tuple[str, str]], folder: Path, rules: Rules | None = None, held_out: Iterable[Pair] = ()
) -> tuple[list[Pair], list[list[str]], CleaningReport]:
    """What is kept, the rows of dropped.tsv, and the counts."""
    report = CleaningReport()
    kept = list(clean((Pair(*pair) for pair in pairs), rules or Rules(), folder / "dropped.tsv", held_out, report))
    rows = [line.split("\t") for line in (folder / "dropped.tsv").read_text(encoding="utf-8").split("\n")[1:-1]]
    return kept, rows, report


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "algo"), "source blank"),
        (("something", "  \u00a0 "), "target blank"),
        (("", ""), "both sides blank"),
        (("x" * 2001, "y" * 2001), "too long"),
        (("a" * 130, "b" * 20), "lengths too different"),
        (("with \x00 inside", "con \x00 dentro"), "control character"),
        (("form\ffeed", "salto"), "control character"),
        (("next\x85line", "liña"), "control character"),
        (("Madrid", "Madrid"), "source equals target"),
    ],
)
def test_each_rule_names_its_reason(pair: tuple[str, str], reason: str, tmp_path: Path) -> None:
    kept, rows, report = cleaned([GOOD, pair], tmp_path)
    assert kept == [GOOD]
    assert [row[:2] for row in rows] == [["2", reason]]
    assert sum(map(len, rows[0])) < 1000, "a very long line is not repeated"
    assert report.dropped == {reason: 1}


@pytest.mark.parametrize(
    "pair",
    [
        ("a" * 20, "b"),  # both short: ratios mean little
        ("1984", "1984"),  # a copy without letters
        ("tab\there", "tab\tquí"),
        ("line\u2028separator", "separador\u2028de liña"),
        ("😀 emoji", "emoji 😀"),
        ("x" * 2000, "y" * 2000),
    ],
)
def test_what_is_unusual_but_fine_is_kept(pair: tuple[str, str], tmp_path: Path) -> None:
    assert cleaned([pair], tmp_path)[0] == [pair]


def test_a_duplicate_is_dropped_where_it_stands_again_and_a_pair_of_dev_or_test_where_it_stands(tmp_path: Path) -> None:
    other = Pair(GOOD.source, "A casa é rubia.")
    kept, rows, _ = cleaned([GOOD, other, GOOD], tmp_path)
    assert kept == [GOOD, other]
    assert rows == [["3", "duplicate", *GOOD]]
    kept, rows, _ = cleaned([other, GOOD], tmp_path, held_out=[GOOD])
    assert (kept, rows) == ([other], [["2", "also in dev or test", *GOOD]])


def test_rules_can_be_switched_off(tmp_path: Path) -> None:
    pairs = [GOOD, GOOD, ("Madrid", "Madrid"), ("x" * 3000, "y" * 10), ("a\x00", "b")]
    lenient = Rules(None, None, control_characters=False, duplicates=False, copies=False, held_out=False)
    assert cleaned(pairs, tmp_path, lenient, held_out=[GOOD])[0] == pairs


def test_pairs_are_compared_and_kept_as_the_pipeline_writes_them(tmp_path: Path) -> None:
    pairs = [Pair("the  house\u00a0is red ", "a casa e\u0301 vermella"), Pair("the house is red", "a casa é vermella")]
    tidy = partial(clean, pairs, Rules(), tmp_path / "dropped.tsv", pipeline=TextPipeline(["tidy"]))
    assert list(tidy()) == pairs[1:]
    assert list(read_lines(tmp_path / "dropped.tsv"))[1].startswith("2\tduplicate\t")
    assert list(tidy(held_out=pairs[:1])) == []


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30)


@given(st.lists(st.tuples(texts, texts)))
def test_every_pair_is_either_kept_or_listed(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("clean")
    kept, rows, report = cleaned(pairs, folder)
    listed = {int(row[0]) for row in rows}
    assert kept == [pair for number, pair in enumerate(pairs, start=1) if number not in listed]
    assert report.read == len(pairs) == report.kept + report.dropped.total()
    assert report.source_lengths.total() == report.kept
