"""A task from outside of the package goes every way that the others go: trained, resumed, swept and reported."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from qknorm.runs.any_recipe import RECIPES
from qknorm.tasks import table
from tests.journeys.conftest import Command
from tests.tasks.lines import LineDescription


@pytest.fixture
def line() -> Iterator[None]:
    table.add(LineDescription())
    yield
    del RECIPES["line"], table.TASKS["line"]


@pytest.mark.usefixtures("line")
def test_a_task_is_its_recipe_and_its_description(command: Command) -> None:
    Path("line.yaml").write_text("{task: line, name: mine, data: {noise: 0.0}, training: {updates: 8}}\n")
    done = command("train", "line.yaml")
    assert (done.code, "dev_bleu 2.00" in done.out) == (0, True), done.errors
    assert command("train", "runs/mine", "--resume").code == 0
    done = command("train", "runs/mine", "--minutes", "1")
    assert (done.code, "holds a line, which cannot be prolonged" in done.errors) == (2, True)
    done = command("generate", "runs/mine", "--prompt", "x")
    assert "runs/mine holds a line, not a language model" in done.errors

    done = command("sweep", "line.yaml", "updates=[4, 8]", "name=lines", "--jobs", "1")
    assert done.code == 0, done.errors
    with Path("runs/lines/results.csv").open() as file:
        assert [(row["updates"], row["best"]) for row in csv.DictReader(file)] == [("4", "1.0"), ("8", "2.0")]
    assert command("report", "runs", "-o", "report.html").code == 0
    assert "dev_bleu" in Path("report.html").read_text()
