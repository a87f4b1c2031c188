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
        0, ["talks-en-gl/qknorm_seed-1", "talks-en-gl/baseline_seed-1"],
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
    drawn = sorted(path.name for path in (runs / "figures" / "talks-en-gl").glob("*.png"))
    assert drawn == ["entropy.png", "figure-1.png", "figure-2.png"]
    assert results == {path: path.stat().st_mtime_ns for path in runs.glob("talks-en-gl/*/result.json")}


def test_the_second_paper_s_figures_are_a_sweep(command: Command) -> None:
    planned = command("reproduce", "lp-figures", "--dry-run", "--json")
    assert planned.code == 0, planned.errors
    assert len(json.loads(planned.out)["runs"]) == 150


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("henry-table7",), "henry-table7"),
        (("henry-table2", "--size", "tiny"), "tiny"),
        (("henry-table2", "--corpus", "nowhere"), "neither a parallel corpus"),
        (("lp-figures", "--corpus", "nowhere", "--size", "smoke"), "no corpus is called 'nowhere'"),
    ],
)
def test_a_wrong_call(arguments: tuple[str, ...], message: str, command: Command) -> None:
    done = command("reproduce", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.errors
    assert done.errors.count("\n") == 1
