from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError
from qknorm.runs.recipe import DataRecipe
from qknorm.training.sets import forget_splits, prepare_sets, read_sets
from tests.phrases import write_phrases


@pytest.fixture
def text(tmp_path: Path) -> Path:
    write_phrases(tmp_path, train=300, held_out=8)
    return tmp_path


def recipe(text: Path, **others: tuple[str, str]) -> DataRecipe:
    return DataRecipe(source=str(text / "train.en"), target=str(text / "train.gl"), languages=("en", "gl"), **others)


def test_only_what_is_missing_is_split_off(text: Path) -> None:
    dev = (str(text / "dev.en"), str(text / "dev.gl"))
    (sets,) = read_sets(recipe(text, dev=dev), text / "data")
    assert sorted(path.name for path in (text / "data").iterdir()) == [
        "dropped.tsv", "test.source", "test.target", "train.lines", "train.source", "train.target",
    ]  # fmt: skip
    assert (len(sets.dev), len(sets.test)) == (8, 30)
    assert sum(1 for _ in read_lines(sets.train.source)) == 270


def test_the_same_is_split_off_again(text: Path) -> None:
    first, second = (read_sets(recipe(text), text / name)[0] for name in ("first", "second"))
    assert (first.dev, first.test) == (second.dev, second.test)
    assert not set(first.dev) & set(first.test)


def test_what_an_earlier_version_split_off_is_found_again(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It noted nothing beside it; the key of its text must stay, or its runs would not resume."""
    monkeypatch.setenv("QKNORM_CACHE", str(text / "cache"))
    old = {name: [(f"{name} {i}", f"{name} de {i}") for i in range(40)] for name in ("train", "dev", "test")}
    for name, pairs in old.items():
        for number, side in enumerate(("source", "target")):
            write_lines(text / "data" / f"{name}.{side}", (pair[number] for pair in pairs))
    (text / "train.en").unlink()
    sets = read_sets(recipe(text), text / "data")
    assert (sets[0].dev, sets[0].test) == (old["dev"], old["test"])
    assert sets[0].train.origin is None
    assert prepare_sets(sets, recipe(text)).folder.name == "620ca123e31e7b55839d7c5c"


def test_a_run_goes_on_without_the_files_that_were_split(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", str(text / "cache"))
    first = read_sets(recipe(text), text / "data")
    (text / "train.en").unlink()
    again = read_sets(recipe(text), text / "data")
    assert again == first
    assert prepare_sets(again, recipe(text)).folder == prepare_sets(first, recipe(text)).folder


def test_what_was_dropped_is_listed_by_the_lines_of_the_given_file(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", str(text / "cache"))
    known = [list(read_lines(text / f"train.{language}")) for language in ("en", "gl")]
    for lines, language in zip(known, ("en", "gl"), strict=True):
        write_lines(text / f"train.{language}", [*lines[:200], "Same.", *lines[200:], lines[7]])
    sets = read_sets(recipe(text), text / "data")
    (direction,) = prepare_sets(sets, recipe(text)).directions
    rows = [line.split("\t")[:2] for line in read_lines(direction.folder / "dropped.tsv")]
    assert rows[1:] == [["201", "source equals target"], ["302", "duplicate"]]
    assert direction.report["dropped"] == {"source equals target": 1, "duplicate": 1}
    assert direction.report["read"] == direction.report["kept"] + 2 == 300 - len(sets[0].dev) - len(sets[0].test) + 2


def test_the_recipe_says_what_is_dropped(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", str(text / "cache"))
    odd = [("Same.", "Same."), ("Twice.", "Dúas veces."), ("Twice.", "Dúas veces."), ("A" * 21, "B")]
    for side, language in enumerate(("en", "gl")):
        write_lines(
            text / f"train.{language}", [*read_lines(text / f"train.{language}"), *(pair[side] for pair in odd)]
        )

    def dropped(**settings: bool | None) -> dict[str, int]:
        name = "-".join(f"{key}={value}" for key, value in settings.items())
        own = recipe(text).model_copy(update=settings)
        (direction,) = prepare_sets(read_sets(own, text / f"data {name}"), own).directions
        counts: dict[str, int] = direction.report["dropped"]
        return counts

    assert dropped() == {"source equals target": 1, "duplicate": 1, "lengths too different": 1}
    assert dropped(keep_copies=True) == {"duplicate": 1, "lengths too different": 1}
    assert dropped(keep_duplicates=True) == {"source equals target": 1, "lengths too different": 1}
    assert dropped(max_ratio=None) == {"source equals target": 1, "duplicate": 1}
    assert dropped(keep_copies=True, keep_duplicates=True, max_ratio=None) == {}


def test_a_text_that_is_too_short_to_be_split_is_named(text: Path) -> None:
    for language in ("en", "gl"):
        write_lines(text / f"train.{language}", (f"{language} {i}" for i in range(29)))
    with pytest.raises(InputError, match=r"train\.en has 29 different sentences .* at least 30 are needed"):
        read_sets(recipe(text), text / "data")


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_set_without_a_pair_is_refused_before_anything_is_learned(split: str, text: Path) -> None:
    write_lines(text / f"{split}.en", ["One.", " "])
    write_lines(text / f"{split}.gl", ["", "Dous."])
    with pytest.raises(InputError, match=rf"{split}\.en and .*{split}\.gl hold no pair of sentences to score"):
        read_sets(recipe(text, **{split: (str(text / f"{split}.en"), str(text / f"{split}.gl"))}), text / "data")


def test_pairs_with_a_blank_side_are_left_out_and_counted(text: Path) -> None:
    write_lines(text / "dev.en", ["One.", "Two.", ""])
    write_lines(text / "dev.gl", ["Un.", "", ""])
    with pytest.warns(UserWarning, match=r"2 of 3 pairs of .*dev\.en have a blank side: left out"):
        (sets,) = read_sets(recipe(text, dev=(str(text / "dev.en"), str(text / "dev.gl"))), text / "data")
    assert sets.dev == [("One.", "Un.")]


def test_held_out_text_is_as_tidy_as_what_is_learned(text: Path) -> None:
    (text / "dev.en").write_text(" The\u00a0house. \n")
    (text / "dev.gl").write_text("A\u202fcasa e\u0301 vella.\n")
    files = str(text / "dev.en"), str(text / "dev.gl")
    given = recipe(text, dev=files, test=files)
    assert read_sets(given, text / "data")[0].dev == [(" The\u00a0house. ", "A\u202fcasa e\u0301 vella.")]
    tidied = given.model_copy(update={"tidy": True})
    assert read_sets(tidied, text / "data")[0].dev == [("The house.", "A casa é vella.")]


def test_only_what_was_split_off_is_forgotten(text: Path) -> None:
    read_sets(recipe(text), text / "data")
    (text / "data" / "mine.txt").write_text("mine")
    forget_splits(recipe(text), text / "data")
    assert [path.name for path in (text / "data").iterdir()] == ["mine.txt"]
    (text / "data" / "mine.txt").unlink()
    read_sets(recipe(text), text / "data")
    forget_splits(recipe(text), text / "data")
    assert not (text / "data").exists()


def test_the_splits_of_several_pairs_are_forgotten(text: Path) -> None:
    back = {"source": str(text / "train.gl"), "target": str(text / "train.en"), "languages": ["gl", "en"]}
    forth = {"source": str(text / "train.en"), "target": str(text / "train.gl"), "languages": ["en", "gl"]}
    both = DataRecipe.model_validate({"pairs": [forth, back]})
    read_sets(both, text / "data")
    assert sorted(path.name for path in (text / "data").iterdir()) == ["en-gl", "gl-en"]
    forget_splits(both, text / "data")
    assert not (text / "data").exists()
