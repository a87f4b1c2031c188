from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.data.textfiles import write_lines
from qknorm.errors import InputError
from qknorm.evaluation.systems import read_systems


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of one corpus, one of another, and a file."""
    for name, reference in (("a-1", "Ola ."), ("a-2", "Ola ."), ("other", "Adeus .")):
        write_lines(tmp_path / name / "test" / "hypotheses.txt", [name])
        write_lines(tmp_path / name / "test" / "references.txt", [reference])
    write_lines(tmp_path / "file.txt", ["Oi ."])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_runs_and_files_and_several_seeds() -> None:
    result = read_systems(["a-1", "file.txt"], None, tokenized=False)
    assert result.runs == {"a-1": [["a-1"]], "file.txt": [["Oi ."]]}
    assert result.references == ["Ola ."]
    result = read_systems(["a=a-1,a-2", "b=file.txt,file.txt"], None, tokenized=False)
    assert result.runs == {"a": [["a-1"], ["a-2"]], "b": [["Oi ."], ["Oi ."]]}


def test_a_path_may_look_like_a_list(folder: Path) -> None:
    write_lines(folder / "p=1,5.txt", ["x"])
    assert read_systems(["a-1", "p=1,5.txt"], None, tokenized=False).runs["p=1,5.txt"] == [["x"]]


def test_equal_names_are_told_apart(folder: Path) -> None:
    write_lines(folder / "deep" / "file.txt", ["x"])
    assert list(read_systems(["file.txt", "deep/file.txt"], folder / "file.txt", False).runs) == [
        "file.txt",
        "deep/file.txt",
    ]


def test_a_run_on_tokens_is_compared_by_its_text(folder: Path) -> None:
    (folder / "a-1" / "recipe.yaml").write_text("data: {corpus: ted-gl-en, scheme: words, languages: [gl, en]}")
    given = ["a-1", "file.txt"]
    assert read_systems(given, None, tokenized=False).references == ["Ola."]
    assert read_systems(given, None, tokenized=False).runs["file.txt"] == [["Oi."]]
    assert read_systems(given, None, tokenized=True).references == ["Ola ."]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a-1", "other"], "differ: systems are compared on the same test set"),
        (["file.txt", "file.txt"], "file.txt is there twice"),
        (["file.txt", "b=file.txt"], "holds no references; give them with --ref"),
        (["a-1", "nowhere"], "nowhere does not exist"),
        (["a-1", "b=a-2,nowhere"], "nowhere does not exist"),
        (["a-1", "."], "holds no test/hypotheses.txt"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_systems(arguments, None, tokenized=False)
