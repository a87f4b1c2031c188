from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.citations import in_words
from qknorm.experiments.report import write_report
from qknorm.experiments.spanned import plan_sweep
from tests.reports import Page
from tests.sweeps import TINY, run


def test_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a line of some text\n" * 30)
    Path("tiny.yaml").write_text(f"{TINY}paper: lopez-rubio-2026\n")
    planned = plan_sweep(Path("tiny.yaml"))
    folder = tmp_path / "runs" / planned.experiment.name
    run(planned, folder)
    write_report(tmp_path / "runs", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "6 of 6 runs are done" in page.text
    assert f"Source. {in_words('lopez-rubio-2026')}" in page.text
    assert "With 2 folds and 2 comparisons Wilcoxon's test cannot" in page.text
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 5
    assert all(picture["alt"] and str(picture["src"]).startswith("data:image/svg+xml") for picture in pictures)
    (folder / "p-2_fold-00" / "metrics.jsonl").write_text("oops\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 1, is damaged"):
        write_report(folder, tmp_path / "report.html")
