from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.data.textfiles import write_lines
from qknorm.errors import InputError
from qknorm.evaluation.systems import lines_of_test, read_systems


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
    result = read_systems(["a=a-1,a-2", "b=file.txt,other"], Path("file.txt"), tokenized=False)
    assert result.runs == {"a": [["a-1"], ["a-2"]], "b": [["Oi ."], ["other"]]}


def test_names_that_look_like_lists_and_equal_ones_are_told_apart(folder: Path) -> None:
    for file in ("p=1,5.txt", "deep/file.txt"):
        write_lines(folder / file, ["x"])
    read = read_systems(["file.txt", "deep/file.txt", "p=1,5.txt"], folder / "file.txt", False)
    assert read.runs == {"file.txt": [["Oi ."]], "deep/file.txt": [["x"]], "p=1,5.txt": [["x"]]}


@pytest.fixture
def tokens(folder: Path) -> Path:
    """One of the runs, on tokenised text."""
    run = folder / "a-1"
    (run / "recipe.yaml").write_text("data: {corpus: ted-gl-en, scheme: words, languages: [gl, en]}")
    write_lines(run / "test" / "hypotheses.txt", ["It is fine ."])
    return run


@pytest.mark.usefixtures("tokens")
def test_a_run_on_tokens_is_compared_by_its_text() -> None:
    for tokenized, reference, line in ((False, "Ola.", "It is fine."), (True, "Ola .", "It is fine .")):
        result = read_systems(["a-1", "file.txt"], None, tokenized)
        assert (result.references, result.runs["a-1"]) == ([reference], [[line]])


@pytest.mark.usefixtures("tokens")
def test_text_beside_a_run_on_tokens_stays_as_it_is(folder: Path) -> None:
    raw = "it's 'fine'"
    for name in ("raw.txt", "reference.txt", "a-2/test/hypotheses.txt"):
        write_lines(folder / name, [raw])
    (folder / "a-2" / "recipe.yaml").write_text("data: {corpus: ted-gl-en, languages: [gl, en]}")
    result = read_systems(["a-1", "raw.txt", "a-2"], folder / "reference.txt", tokenized=False)
    assert result.runs == {"a-1": [["It is fine."]], "raw.txt": [[raw]], "a-2": [[raw]]}
    assert result.references == [raw]


def test_files_of_a_run_on_tokens_are_what_the_run_is(tokens: Path) -> None:
    references = tokens / "test" / "references.txt"
    result = read_systems(["a-1/test/hypotheses.txt", "file.txt"], references, tokenized=False)
    assert (result.runs["hypotheses.txt"], result.references) == ([["It is fine."]], ["Ola."])


@pytest.mark.usefixtures("tokens")
def test_references_agree_where_their_text_does(folder: Path) -> None:
    write_lines(folder / "other" / "test" / "references.txt", ["Ola."])
    assert read_systems(["a-1", "other"], None, tokenized=False).references == ["Ola."]
    with pytest.raises(InputError, match="differ: systems are compared on the same test set"):
        read_systems(["a-1", "other"], None, tokenized=True)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a-1", "other"], "differ: systems are compared on the same test set"),
        (["file.txt", "file.txt"], "file.txt is there twice"),
        (["file.txt", "b=file.txt"], "holds no references; give a file of them"),
        (["a-1", "nowhere"], "nowhere does not exist"),
        (["a-1", "b=a-2,nowhere"], "nowhere does not exist"),
        (["a-1", "."], "holds no test/hypotheses.txt"),
        (["a=a-1,a-1", "a-2"], "a has the same run twice, as a-1 and as a-1; give every seed once"),
        (["a-1", "b=a-2,./a-1/../a-2"], "b has the same run twice, as a-2 and as a-1/../a-2"),
        (["a=a-1,a-1/test/hypotheses.txt", "a-2"], "a has the same run twice"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_systems(arguments, None, tokenized=False)


def test_a_copy_of_a_run_is_no_further_seed(folder: Path) -> None:
    for name, seed in (("a-1", 1), ("a-2", 1)):
        recipe = f"name: {name}\ndata: {{corpus: ted-gl-en, languages: [gl, en]}}\ntraining: {{seed: {seed}}}\n"
        (folder / name / "recipe.yaml").write_text(recipe)
    with pytest.raises(InputError, match="a-1 and a-2 of a have the same recipe and the same seed, 1; give one of"):
        read_systems(["a=a-1,a-2", "b=file.txt,other"], folder / "file.txt", tokenized=False)
    assert list(read_systems(["a-1", "a-2"], None, tokenized=False).runs) == ["a-1", "a-2"]
    (folder / "a-2" / "recipe.yaml").write_text(recipe.replace("seed: 1", "seed: 2"))
    assert len(read_systems(["a=a-1,a-2", "b=file.txt,other"], folder / "file.txt", tokenized=False).runs["a"]) == 2


def test_tokens_of_a_test_are_cut_as_its_references_are(folder: Path) -> None:
    """Every system of a table alike, whatever it answered."""
    run = folder / "a-1"
    (run / "recipe.yaml").write_text("data: {corpus: ted-gl-en, languages: [gl, zh]}")
    write_lines(run / "test" / "references.txt", ["我喜欢读书。"])
    write_lines(run / "test" / "hypotheses.txt", ["I like it, 喜欢."])
    assert lines_of_test(run, "references", as_tokens=True) == ["我 喜 欢 读 书 。"]
    assert lines_of_test(run, "hypotheses", as_tokens=True) == ["I like it , 喜 欢 ."]
    assert lines_of_test(run, "references", as_tokens=False) == ["我喜欢读书。"]
