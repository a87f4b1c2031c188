from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any

import pytest

from qknorm.counting.suspects import suspects
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError
from qknorm.runs.recipe import DataRecipe
from qknorm.training.sets import prepared_text
from tests.phrases import write_phrases


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", str(tmp_path / "cache"))


def recipe(text: Path, **others: Any) -> DataRecipe:
    return DataRecipe(source=str(text / "train.en"), target=str(text / "train.gl"), languages=("en", "gl"), **others)


NOTED = {"train.lines": [str(i + 1) for i in range(40)], "dropped.tsv": ["line\treason\tsource\ttarget"]}


def write_earlier(folder: Path, noted: Mapping[str, list[str]]) -> None:
    """What an earlier version split off into the run folder, and noted beside it."""
    for name in ("train", "dev", "test"):
        write_lines(folder / f"{name}.source", [f"{name} {i}" for i in range(40)])
        write_lines(folder / f"{name}.target", [f"{name} de {i}" for i in range(40)])
    for name, lines in noted.items():
        write_lines(folder / name, lines)


@pytest.mark.parametrize(
    ("noted", "key"),
    [({}, "620ca123e31e7b55839d7c5c"), (NOTED, "aca064c1e53df9b45c15c20a")],
    ids=["before anything was noted", "with what was noted"],
)
def test_a_run_of_an_earlier_version_goes_on_with_what_it_split_off(
    noted: Mapping[str, list[str]], key: str, tmp_path: Path
) -> None:
    """Without the text that it was split off; under the same key."""
    write_earlier(tmp_path / "data", noted)
    prepared = prepared_text(recipe(tmp_path), earlier=tmp_path / "data")
    (direction,) = prepared.directions
    assert prepared.key == key
    sets = (direction.train, direction.dev, direction.test)
    assert [own.sources[39] for own in sets] == ["train 39", "dev 39", "test 39"]


def test_of_several_pairs_each_has_what_it_split_off(tmp_path: Path) -> None:
    write_phrases(tmp_path, train=100, held_out=8)
    write_earlier(tmp_path / "data" / "en-gl", {})
    dev = (str(tmp_path / "dev.gl"), str(tmp_path / "dev.en"))
    back = {"source": str(tmp_path / "train.gl"), "target": str(tmp_path / "train.en"), "dev": dev, "test": dev}
    both = DataRecipe.model_validate(
        {
            "pairs": [
                {"source": "gone", "target": "gone", "languages": ["en", "gl"]},
                {**back, "languages": ["gl", "en"]},
            ]
        }
    )
    forth, other = prepared_text(both, earlier=tmp_path / "data").directions
    assert (forth.files.name, other.files.name) == ("en-gl", "gl-en")
    assert forth.test.sources[0] == "test 0"
    assert other.dev.sources == list(read_lines(tmp_path / "dev.gl"))


def test_the_recipe_says_what_is_dropped(tmp_path: Path) -> None:
    write_phrases(tmp_path, train=60, held_out=8)
    odd = [("Same.", "Same."), ("Twice.", "Dúas veces."), ("Twice.", "Dúas veces."), ("A" * 21, "B")]
    for side, language in enumerate(("en", "gl")):
        path = tmp_path / f"train.{language}"
        write_lines(path, [*read_lines(path), *(pair[side] for pair in odd)])

    def dropped(**settings: bool | None) -> set[str]:
        (direction,) = prepared_text(recipe(tmp_path, **settings)).directions
        return set(direction.report.dropped)

    copy, again, lengths = "source equals target", "duplicate", "lengths too different"
    assert dropped() == {copy, again, lengths}
    assert dropped(keep_copies=True) == {again, lengths}
    assert dropped(keep_duplicates=True) == {copy, lengths}
    assert dropped(max_ratio=None) == {copy, again}


def test_a_named_corpus_brings_its_sets_and_tidy_text_is_asked_for(tmp_path: Path) -> None:
    prepared = prepared_text(DataRecipe(corpus="phrasebook-en-gl:200", merges=10))
    assert [len(own) for own in (prepared.directions[0].train, *prepared.directions[0].held_out.values())] == [
        200, 2000, 2000,
    ]  # fmt: skip
    write_phrases(tmp_path, train=60, held_out=8)
    write_lines(tmp_path / "train.en", [f" {line}" for line in read_lines(tmp_path / "train.en")])
    plain, tidy = (prepared_text(recipe(tmp_path, tidy=tidy)).directions[0].train.sources for tidy in (False, True))
    assert [f" {line}" for line in tidy] == plain


def test_both_ways_hold_out_the_same_sentences_and_learn_from_none_of_them(tmp_path: Path) -> None:
    write_phrases(tmp_path, train=300, held_out=8)
    english, galician = (list(read_lines(tmp_path / f"train.{code}")) for code in ("en", "gl"))
    write_lines(tmp_path / "train.en", [*english, *(f"Look: {line}" for line in english)])
    write_lines(tmp_path / "train.gl", galician * 2)  # each Galician sentence has two sources
    forth, back = prepared_text(recipe(tmp_path, both_ways=True, merges=100)).directions
    assert (back.files.languages, back.files.source.name, back.files.target.name) == (
        *(("gl", "en"), "train.gl", "train.en"),
    )
    for ours, theirs in ((forth.train, back.train), (forth.dev, back.dev), (forth.test, back.test)):
        assert (ours.sources, ours.targets) == (theirs.targets, theirs.sources)
        assert [*ours.encoded.source] == [*theirs.encoded.target]
        assert [*ours.encoded.target] == [*theirs.encoded.source]
    for held_out in (forth.dev, forth.test):
        assert len(held_out) > 0
        assert set(back.train.sources).isdisjoint(held_out.targets)
    assert forth.report.longest_source == max(map(len, forth.train.encoded.source))
    assert back.report.longest_source == max(map(len, forth.train.encoded.target))


def test_both_ways_of_a_named_corpus() -> None:
    forth, back = prepared_text(DataRecipe(corpus="phrasebook-en-gl:200", both_ways=True, merges=10)).directions
    assert back.files.languages == ("gl", "en")
    assert (back.train.sources, back.test.sources) == (forth.train.targets, forth.test.targets)


def test_text_in_one_language_is_nothing_to_prepare(tmp_path: Path) -> None:
    alone = [{"kind": "target", "target": str(tmp_path / "train.gl"), "languages": ["en", "gl"]}]
    with pytest.raises(InputError, match="text in one language, which `qknorm train` with minutes translates back"):
        prepared_text(recipe(tmp_path, extra=alone))


def test_the_most_suspect_pairs_are_dropped_if_that_is_asked_for(tmp_path: Path) -> None:
    write_phrases(tmp_path, train=600, held_out=20)
    whole, doubtless = (prepared_text(recipe(tmp_path, max_suspicion=most)).directions[0].train for most in (None, 2))
    is_kept = suspects(whole.sources, whole.targets) <= 2
    assert 0 < is_kept.sum() < len(whole)
    assert doubtless.sources == list(compress(whole.sources, is_kept))
