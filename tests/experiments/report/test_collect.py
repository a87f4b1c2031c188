from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.report import write_report
from qknorm.experiments.report.collect import collect


def test_runs_are_found_three_levels_deep(bare_run: Path, tmp_path: Path) -> None:
    for place in ("x/run", "y/z/run", "heads-16", "heads-4", ".hidden", "a/b/c/too-deep"):
        shutil.copytree(bare_run, tmp_path / "all" / place)
    expected = ["heads-4", "heads-16", "x/run", "y/z/run"]
    assert [actual.name for actual in collect(tmp_path / "all").translators] == expected
    (tmp_path / "all" / "sweep.json").write_text('{"task": "translation"}')
    assert [actual.name for actual in collect(tmp_path / "all").translators] == expected


def _become_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.touch()


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda run: (run / name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_write("metrics.jsonl", "oops\n"), "metrics.jsonl, line 1, is damaged"),
        (_write("metrics.jsonl", '{"step": "x", "seconds": 1, "train_loss": 1}\n'), "line 1, is damaged: step: "),
        (_write("metrics.jsonl", "[]\n"), "metrics.jsonl, line 1, is damaged"),
        (_write("recipe.yaml", "data: ["), "recipe.yaml is not a YAML file"),
        (_write("recipe.yaml", "{data: {corpus: x}, nam: x}"), "there is no key nam"),
        (_write("corpus.json", "{}"), "corpus.json is damaged: pieces: "),
        (_write("corpus.json", '{"pieces": 1, "pairs": []}'), "corpus.json is of another recipe"),
        (_write("dropped.tsv", "line\nonly one column\n"), "dropped.tsv, line 2, is damaged"),
        (_write("sweep.json", "{"), "sweep.json is damaged"),
        (lambda run: (run / "corpus.json").unlink(), "there is no run in"),
        (_become_a_file, "is a file; a report is made of"),
        (shutil.rmtree, "does not exist"),
        (lambda run: (run.parent / "report.html").mkdir(), "report.html is a folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the same in every worker
)
def test_wrong_input_is_named(bare_run: Path, tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(bare_run)
    with pytest.raises(InputError, match=message):
        write_report(bare_run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").is_file()


def test_a_test_set_with_a_missing_line_is_named(trained_run: Path, tmp_path: Path) -> None:
    shutil.copytree(trained_run, tmp_path / "run")
    (tmp_path / "run" / "test" / "hypotheses.txt").write_text("one\n")
    with pytest.raises(InputError, match="differ in length"):
        write_report(tmp_path / "run", tmp_path / "report.html")
