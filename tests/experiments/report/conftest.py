"""Runs and pages that several tests of the report look at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qknorm.experiments.report import write_report
from tests.reports import two_systems


@pytest.fixture(scope="package")
def both(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_systems(trained_run, tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="package")
def html(both: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("out") / "report.html"
    write_report(both, out)
    return out.read_text(encoding="utf-8")


@pytest.fixture
def bare_run(trained_run: Path, tmp_path: Path) -> Path:
    """A run as it is before its first validation."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("recipe.yaml", "corpus.json", "dropped.tsv", "pairs.json", "tokenizer.json"):
        shutil.copyfile(trained_run / name, folder / name)
    return folder
