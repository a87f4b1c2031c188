from __future__ import annotations

from qknorm.experiments.formats import Table, as_csv, as_latex, as_markdown, latex


def test_latex_prints_signs_as_they_are() -> None:
    assert latex("-1.20 – +0.20 & 5 % ± 1 ≤ a_b heads-2") == (r"$-$1.20 -- +0.20 \& 5 \% $\pm$ 1 $\leq$ a\_b heads-2")


def test_a_table_in_latex_has_three_rules_and_a_column_for_each_cell() -> None:
    assert as_latex("5 % of it", [Table("", "", ["", "loss"], [["p = 2", "-1.20"]])], []).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{5 \% of it.}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & loss \\",
        r"\midrule",
        r"p = 2 & $-$1.20 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_records_of_different_keys_share_a_csv() -> None:
    assert as_csv([{"a": 1, "b": 0.25}, {"a": 2, "c": "x, y"}]) == 'a,b,c\n1,0.25,\n2,,"x, y"\n'


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert as_markdown([Table("", "", ["a|b", "c"], [])]).splitlines() == [r"| a\|b | c |", "| --- | --- |"]
