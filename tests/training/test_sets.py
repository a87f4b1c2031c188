from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError
from qknorm.runs.recipe import DataRecipe
from qknorm.training.sets import forget_splits, read_sets
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
        "test.source", "test.target", "train.source", "train.target",
    ]  # fmt: skip
    assert (len(sets.dev), len(sets.test)) == (8, 30)
    assert sum(1 for _ in read_lines(sets.train.source)) == 270


def test_the_same_is_split_off_again(text: Path) -> None:
    first, second = (read_sets(recipe(text), text / name)[0] for name in ("first", "second"))
    assert (first.dev, first.test) == (second.dev, second.test)
    assert not set(first.dev) & set(first.test)


def test_a_text_that_is_too_short_to_be_split_is_named(text: Path) -> None:
    for language in ("en", "gl"):
        (text / f"train.{language}").write_text("x\n" * 29)
    with pytest.raises(InputError, match="has 29 lines; at least 30 are needed"):
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
