from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from qknorm.data.textfiles import write_lines
from qknorm.evaluation import wording
from qknorm.experiments.report import write_report
from tests.contents import validation
from tests.phrases import write_phrases
from tests.reports import Page, experiment


def test_a_run_under_way_is_shown_with_what_it_has(bare_run: Path, tmp_path: Path) -> None:
    write_report(bare_run, tmp_path / "report.html")
    assert "bare has not been tested: what is shown is its state before its first validation" in (
        tmp_path / "report.html"
    ).read_text(encoding="utf-8")
    line = validation(5, measures={"dev_bleu": 2.5, "dev_loss": math.nan}).as_text()
    (bare_run / "metrics.jsonl").write_text(line + "\n" + line[:20])
    write_report(bare_run, tmp_path / "report.html")
    assert "its state after update 5 (dev BLEU 2.5)" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_of_a_glossary_bleu_is_not_a_judge(both: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(both, tmp_path / "runs")
    for run, chrf in zip(sorted(runs.iterdir()), (60.0, 70.0), strict=True):
        for file in (run / "test").glob("*.txt"):
            write_lines(file, ["casa", "pan", "mar"])
        scores = json.loads((run / "test" / "scores.json").read_text())
        (run / "test" / "scores.json").write_text(json.dumps(scores | {"chrf": chrf}))
    write_report(runs, tmp_path / "report.html")
    text = " ".join(Page((tmp_path / "report.html").read_text(encoding="utf-8")).text.split())
    assert f"good reached the highest score, 70.0 chrF. {wording.TOO_SHORT}" in text
    assert "cannot be told apart" not in text


@pytest.fixture(scope="module")
def table(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce-smoke")
    (folder / "corpus" / "talks").mkdir(parents=True)
    write_phrases(folder / "corpus" / "talks", train=4, held_out=2)
    return experiment(trained_run, folder, folder / "corpus" / "talks")


@pytest.fixture(scope="module")
def table_page(table: Path) -> str:
    write_report(table.parent.parent, table.with_name("report.html"))
    return table.with_name("report.html").read_text(encoding="utf-8")


class TestBesideATable:
    """The report on the runs of an experiment says what the table of the same runs says."""

    def test_every_number_is_that_of_the_table(self, table: Path, table_page: str) -> None:
        rows = {row["system"]: row for row in json.loads(table.with_suffix(".json").read_text())["table"]}
        columns, printed = score_table(table_page)
        assert printed.keys() == rows.keys()
        same = {"BLEU": "ours", "difference": "our diff.", "95 % of it": "95 %", "p": "p", "paper": "paper"}
        for system, cells in printed.items():
            theirs = dict(zip(columns, cells, strict=True))
            assert {name: theirs[name] for name in same} == {name: rows[system][own] for name, own in same.items()}
        assert float(rows["shorter"]["p"].removeprefix("≤ ")) < 0.05

    def test_the_verdicts_are_those_of_its_page(self, table: Path, table_page: str) -> None:
        text, written = Page(table_page).text, table.read_text()
        for start in ("shorter is worse than whole by", "almost whole and whole cannot be told apart"):
            (sentence,) = re.findall(f"{start}.*?\\)\\.", written)
            assert sentence in text

    def test_a_best_rate_at_the_end_of_those_tried_is_told(
        self, table: Path, trained_run: Path, tmp_path: Path
    ) -> None:
        rated = experiment(trained_run, tmp_path, table.parents[1] / "corpus" / "talks", rates="[0.001, 0.002]")
        write_report(tmp_path, tmp_path / "report.html")
        told = "shorter, whole and almost whole were best at the lowest rate tried, so a lower one may be better still."
        assert told in rated.read_text()
        assert f"Nothing was trained. {told}" in Page((tmp_path / "report.html").read_text(encoding="utf-8")).text

    def test_what_was_shrunk_is_said_at_the_head(self, table_page: str) -> None:
        assert "SMOKE SIZE" in table_page[: table_page.index("<nav")]

    def test_its_runs_are_not_compared_in_another_way(self, table_page: str) -> None:
        assert table_page.count('<table class="scores">') == 1

    def test_a_report_on_a_part_of_its_runs_compares_none_of_them(self, table: Path, tmp_path: Path) -> None:
        write_report(table.parent.parent / "talks" / "alike_seed-1", tmp_path / "report.html")
        text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
        assert "SMOKE SIZE" in text
        assert "chance" not in text


def score_table(page: str) -> tuple[list[str], dict[str, list[str]]]:
    """The columns of the first table of scores, and its cells by system."""
    table = page[page.index('<table class="scores">') :].partition("</table>")[0]
    columns = re.findall(r'<th scope="col">(.*?)</th>', table)
    rows = re.findall(r'<th scope="row">.*?</svg> (.*?)(?: <span.*?)?\s*</th>(.*?)</tr>', table, re.DOTALL)
    return columns[1:], {name: re.findall(r"<td>(?:<b>)?(.*?)(?:</b>)?</td>", cells) for name, cells in rows}
