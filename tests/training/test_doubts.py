from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qknorm.data.phrasebook import pairs as phrases
from qknorm.data.textfiles import write_lines
from qknorm.runs.recipe import DataRecipe
from qknorm.training.doubts import doubts, is_in_unknown_language
from qknorm.training.sets import prepared_text

Pairs = list[tuple[str, str]]

EN_GL: Pairs = list(phrases(500))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", str(tmp_path / "cache"))


def of(folder: Path, train: Pairs, dev: Pairs | None = None, test: Pairs | None = None) -> list[str]:
    """The doubts about such a text; sets that are not given are split off."""
    given = {"train": train} | ({"dev": dev} if dev else {}) | ({"test": test} if test else {})
    files = {name: (str(folder / f"{name}.en"), str(folder / f"{name}.gl")) for name in given}
    for name, pairs in given.items():
        for side, file in enumerate(files[name]):
            write_lines(Path(file), (pair[side] for pair in pairs))
    source, target = files.pop("train")
    recipe = DataRecipe(source=source, target=target, merges=10, keep_copies=True, **files)
    (direction,) = prepared_text(recipe).directions
    return list(doubts(recipe, direction, Path("dropped.tsv")))


def swapped(pairs: Pairs) -> Pairs:
    return [(target, source) for source, target in pairs]


def test_a_good_or_an_odd_text_gives_no_doubts(tmp_path: Path) -> None:
    """Neither short sets that were split off, nor a training text of copies, nor words that it does not have."""
    copies = [(source, source) for source, _ in EN_GL[100:]]
    other = [(" ".join(source)[::-1], " ".join(target)[::-1]) for source, target in EN_GL[:60]]
    assert of(tmp_path / "split", EN_GL[:60]) == []
    assert of(tmp_path / "given", EN_GL[100:], EN_GL[:50], EN_GL[50:100]) == []
    assert of(tmp_path / "all copies", copies, EN_GL[:60]) == []
    assert of(tmp_path / "half copies", [*copies, *EN_GL[100:]], EN_GL[:60]) == []
    assert of(tmp_path / "other words", EN_GL[100:], other) == []


def test_a_text_of_which_little_is_left(tmp_path: Path) -> None:
    (doubt,) = of(tmp_path, EN_GL[:100] * 2)
    assert doubt == (
        "100 of 200 pairs were dropped (dropped.tsv lists them); most were: duplicate; "
        "keep_duplicates=true would keep them"
    )
    (doubt,) = of(tmp_path / "blank", [*EN_GL[:100], *[("", "")] * 30])
    assert doubt.endswith("most were: both sides blank")


def test_sets_that_share_pairs(tmp_path: Path) -> None:
    (doubt,) = of(tmp_path, EN_GL[150:], EN_GL[:60], EN_GL[50:120])
    assert doubt == "10 of 70 pairs of the test set are in the dev set, too: its score says less about new text"


@pytest.mark.parametrize("name", ["dev", "test"])
def test_a_small_set_is_named(name: str, tmp_path: Path) -> None:
    (doubt,) = of(tmp_path, EN_GL[100:], **{name: EN_GL[:49]})
    assert doubt == f"the {name} set has 49 pairs, fewer than 50: its score depends much on chance"
    assert of(tmp_path, EN_GL[100:], **{name: EN_GL[:50]}) == []


def test_blank_pairs_of_a_set_are_counted(tmp_path: Path) -> None:
    (doubt,) = of(tmp_path, EN_GL[100:], dev=[*EN_GL[:60], ("", "a"), ("b", " ")])
    assert doubt.endswith("dev.en have a blank side: left out")
    assert doubt.startswith("2 of 62 pairs of ")


@pytest.mark.parametrize("name", ["dev", "test"])
def test_swapped_and_copied_sides_are_noticed(name: str, tmp_path: Path) -> None:
    (doubt,) = of(tmp_path, EN_GL[100:], **{name: swapped(EN_GL[:60])})
    assert f"{name}.en has mostly words of" in doubt
    assert doubt.endswith(f"train.gl: are the files of the {name} set swapped?")
    (doubt,) = of(tmp_path, EN_GL[100:], **{name: [(source, source) for source, _ in EN_GL[:60]]})
    assert f"{name}.gl has mostly words of" in doubt
    assert "train.en: " in doubt


def near(galician: str) -> str:
    """Galician, spelled a little as Portuguese is: most words stay."""
    return galician.replace("ñ", "nh").replace("ll", "lh").replace("ción", "ção")


def test_close_languages_are_told_apart_or_left_alone(tmp_path: Path) -> None:
    pairs = [(galician, near(galician)) for _, galician in EN_GL]
    assert sum(a == b for source, target in pairs for a, b in zip(source.split(), target.split(), strict=True)) > 1000
    assert of(tmp_path, pairs[100:], pairs[:60]) == []


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_sentences_in_the_right_order_raise_no_doubt(tmp_path_factory: pytest.TempPathFactory, random: Random) -> None:
    drawn = random.sample(EN_GL, 200)
    assert of(tmp_path_factory.mktemp("drawn"), drawn[50:], drawn[:50]) == []


def test_a_text_in_a_language_that_is_not_ones_own_is_unknown_and_one_without_spaces_says_nothing() -> None:
    english, galician = ([pair[side] for pair in EN_GL] for side in (0, 1))
    assert is_in_unknown_language(galician, english)
    assert is_in_unknown_language([line[::-1] for line in english], english)
    assert not is_in_unknown_language(english[::2], english[1::2])
    assert not is_in_unknown_language(
        [line.replace(" ", "") for line in galician], [line.replace(" ", "") for line in english]
    )
