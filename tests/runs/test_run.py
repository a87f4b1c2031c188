"""The run folder, of whichever task: what is in it, and that its names are spelled in one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.contents import Scores, TranslationResult
from qknorm.runs.language_run import LanguageRun
from qknorm.runs.run import Run
from tests.contents import translated, validation, write_metrics

PACKAGE = Path(__file__).parents[2] / "qknorm"
NAMES = {
    *("recipe.yaml", "corpus.json", "metrics.jsonl", "status.json", "result.json", "log.txt", "checkpoints"),
    "failure.txt",
    *("source.txt", "references.txt", "hypotheses.txt", "scores.json", "tokenizer.json", "pairs.json", "dropped.tsv"),
    "characters.json",
}  # and tensorboard/, which has the name of the extra that it needs
# The files of `qknorm data check`, which is not about runs.
CHECKED = {"commands/data.py"}


def test_the_names_of_files_are_spelled_in_one_place() -> None:
    modules = defaultdict[str, set[str]](set)
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if module not in CHECKED:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and node.value in NAMES:
                    modules[str(node.value)].add(module)
    assert modules.keys() == NAMES
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(content)
    return folder


def test_a_run_knows_its_task(tmp_path: Path) -> None:
    write(tmp_path, recipe_yaml="data: {corpus: phrasebook-en-gl}")
    assert Run.open(tmp_path).kind == "translation"
    write(tmp_path, recipe_yaml="task: language\ndata: {corpus: tinyshakespeare}")
    assert Run.open(tmp_path).kind == "language"
    assert LanguageRun.open(tmp_path).recipe == Run.open(tmp_path).recipe


def test_a_folder_without_a_recipe_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a run folder: there is no recipe\.yaml in it"):
        Run.open(tmp_path)


def test_a_line_of_metrics_without_its_end_is_left_out(tmp_path: Path) -> None:
    assert Run(tmp_path).metrics() == []
    lines = [validation(8), validation(16)]
    write_metrics(tmp_path, *lines)
    with Run(tmp_path).metrics_file.open("a") as file:
        file.write('{"step": 2')
    assert Run(tmp_path).metrics() == lines


def test_tests_are_those_that_have_scores(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for direction in ("en-gl", "gl-en", "en-pt"):
        run.test_set(direction).folder.mkdir(parents=True)
    scores = Scores(measures={"bleu": 20.0}, lines=3, signature="")
    for direction in ("gl-en", "en-gl"):
        scores.write(run.test_set(direction).scores_file)
    assert run.tests() == [run.test_set("en-gl"), run.test_set("gl-en")]
    assert [test.scores() for test in run.tests()] == [scores] * 2


def test_a_run_among_many_is_done_when_it_has_a_result(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert not run.is_done
    run.save_result(translated(20.0))
    assert run.is_done
    assert run.result(TranslationResult) == translated(20.0)
