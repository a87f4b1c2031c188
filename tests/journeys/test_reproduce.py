"""The first paper's tables through the command line, at the smoke size on a few phrases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.caches import new_cache
from tests.journeys.conftest import Command
from tests.phrases import write_phrases


@pytest.fixture
def talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    folder = tmp_path / "talks-en-gl"
    folder.mkdir()
    write_phrases(folder, train=200, held_out=16)
    return folder


def test_tables_share_their_runs(talks: Path, command: Command, tmp_path: Path) -> None:
    options = ("--size", "smoke", "--corpus", str(talks), "--jobs", "1")
    planned = command("reproduce", "henry-table2", *options, "--dry-run", "--json")
    assert (planned.code, [run["run"] for run in json.loads(planned.out)["runs"]]) == (
        0, ["talks-en-gl/baseline_seed-1", "talks-en-gl/qknorm_seed-1"],
    )  # fmt: skip
    assert not (tmp_path / "runs").exists()

    done = command("reproduce", "henry-table2", *options)
    assert done.code == 0, done.errors
    assert "SMOKE SIZE" in done.out
    runs = tmp_path / "runs" / "reproduce-smoke"
    results = {path: path.stat().st_mtime_ns for path in runs.glob("talks-en-gl/*/result.json")}
    assert len(results) == 2
    (table,) = (runs / "tables").glob("*.md")
    assert "| talks-en-gl | QKNorm + LayerNorm |" in table.read_text()
    written = {path.name for path in (runs / "tables").iterdir()}
    assert written == {*(f"henry-table2_talks-en-gl.{kind}" for kind in ("md", "csv", "tex", "json")), "references.bib"}

    scores = command("reproduce", "henry-table3", *options, "--json")
    rows = json.loads(scores.out)["rows"]
    assert [row["system"] for row in rows] == ["baseline (Nguyen and Salazar)", "QKNorm + LayerNorm"]
    assert rows[1]["difference"] == pytest.approx(rows[1]["ours"] - rows[0]["ours"])
    assert {row["paper"] for row in rows} == {None}, "the paper says nothing about this corpus"

    described = command("reproduce", "henry-table1", *options)
    assert "200" in described.out
    figures = command("reproduce", "henry-figures", *options, "--json")
    measured = json.loads(figures.out)["table"]
    assert all(0 < float(row["lowest head"]) <= float(row["mean entropy"]) < 1 for row in measured)
    drawn = {path.name for path in (runs / "figures" / "talks-en-gl").iterdir()}
    of_figures = [f"henry-figures_{name}" for name in ("entropy", "figure-1", "figure-2")]
    of_tables = [f"henry-table{number}_differences" for number in (2, 3)]
    assert drawn == {f"{name}.{kind}" for name in (*of_figures, *of_tables) for kind in ("png", "svg", "pdf")}
    page = (runs / "tables" / "henry-figures_talks-en-gl.md").read_text()
    assert {name for name in drawn if f"(../figures/talks-en-gl/{name})" in page} == {
        "henry-figures_entropy.png", "henry-figures_figure-1.png", "henry-figures_figure-2.png",
    }  # fmt: skip
    assert results == {path: path.stat().st_mtime_ns for path in runs.glob("talks-en-gl/*/result.json")}


OWN = """
title: Which p, each at its best rate?
rates: [0.002, 0.004]
rows:
  - like: qknorm
"""


def test_an_own_table_with_an_added_row(talks: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "row.yaml").write_text("{name: p3, label: p = 3, changes: {model: {p: 3}}, published: 20}")
    options = ("--add", "row.yaml", "--size", "smoke", "--corpus", str(talks), "--jobs", "1")
    done = command("reproduce", "own.yaml", *options)
    assert done.code == 0, done.errors
    assert "has the one that was best on dev" in done.out
    runs = tmp_path / "runs" / "reproduce-smoke"
    results = {path: path.stat().st_mtime_ns for path in runs.glob("talks-en-gl/*_rate-*_seed-1/result.json")}
    assert len(results) == 4

    again = command("reproduce", "own.yaml", *options, "--json")
    about = json.loads(again.out)
    assert results == {path: path.stat().st_mtime_ns for path in results}
    full, other = about["rows"]
    assert (full["rates_tried"], other["paper"], other["p_value"] is None) == (2, 20, False)
    dev = {path.parent.name: json.loads(path.read_text())["best_dev_bleu"] for path in results}
    assert dev[f"qknorm_rate-{full['rate']:g}_seed-1"] == max(bleu for name, bleu in dev.items() if "qknorm" in name)
    seconds = [json.loads(path.read_text())["seconds"] for path in results if "p3" in path.parent.name]
    assert other["hours"] == pytest.approx(sum(seconds) / 3600)


def test_the_second_paper_s_figures_are_a_sweep(command: Command) -> None:
    planned = command("reproduce", "lp-figures", "--dry-run", "--json")
    assert planned.code == 0, planned.errors
    assert len(json.loads(planned.out)["runs"]) == 140


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("henry-table7",), "henry-table7"),
        (("wrong.yaml",), "wrong.yaml: there is no key qestion; the nearest is question"),
        (("henry-table2", "--gpus", "99"), "there is no GPU '99' on this machine"),
        (("henry-table2", "--size", "tiny"), "tiny"),
        (("henry-table2", "--corpus", "nowhere"), "neither a parallel corpus"),
        (("henry-table2", "--add", "nowhere.yaml"), "nowhere.yaml does not exist"),
        (("lp-figures", "--add", "row.yaml"), "a sweep, which has no rows to add to"),
        (("henry-table2", "--minutes", "5"), "--minutes are for --size medium; the size small says how many updates"),
        (("henry-table2", "--size", "medium", "--minutes", "inf"), "--minutes must be more than 0 and finite, not inf"),
        (("lp-figures", "--size", "medium", "--minutes", "5"), "trains language models, for iterations"),
        (("lp-figures", "--corpus", "nowhere", "--size", "smoke"), "no corpus is called 'nowhere'"),
    ],
)
def test_a_wrong_call(
    arguments: tuple[str, ...], message: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text("{title: Mine, qestion: Which, rows: [{like: qknorm}]}")
    Path("row.yaml").write_text("{name: mine}")
    done = command("reproduce", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.errors
    assert done.errors.count("\n") == 1
