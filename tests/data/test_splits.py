from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data.cleaning import Rules, clean
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.splits import Origin, split_off
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError

Pairs = list[tuple[str, str]]

ALL_DIFFERENT = [(f"The house number {i}.", f"A casa número {i}.") for i in range(300)]


def split(
    pairs: Pairs,
    folder: Path,
    rules: Rules | None = None,
    held_out: Sequence[tuple[str, str]] = (),
    names: tuple[str, ...] = ("dev", "test"),
) -> dict[str, list[Pair]]:
    """What is in each set."""
    sides = (folder / "mine.en", folder / "mine.gl")
    for side, path in enumerate(sides):
        write_lines(path, (pair[side] for pair in pairs))
    splits = {name: (folder / f"{name}.source", folder / f"{name}.target") for name in ("train", *names)}
    split_off(origin(folder), splits, rules or Rules(), [Pair(*pair) for pair in held_out])
    return {name: list(read_aligned(*files)) for name, files in splits.items()}


def origin(folder: Path) -> Origin:
    return Origin(folder / "mine.en", folder / "mine.gl", folder / "train.lines", folder / "dropped.tsv")


def normalized(source: str) -> str:
    return " ".join(unicodedata.normalize("NFC", source).split())


# Few words, so that sources are often the same, or the same but for spaces or the form of é.
sources = st.lists(st.sampled_from(["one", "two", "Two", "caf\u00e9", "cafe\u0301", " "]), max_size=3).map(" ".join)
different = [(f"line {i}", f"liña {i}") for i in range(60)]  # so that there is something to split
texts = st.tuples(
    st.lists(st.tuples(sources, st.sampled_from(["un", "dous", "", "two"])), max_size=60),
    st.randoms(use_true_random=False),
).map(lambda drawn: drawn[1].sample([*drawn[0], *different], len(drawn[0]) + len(different)))


@given(texts, st.booleans())
def test_a_source_is_in_one_set_and_a_kept_pair_in_exactly_one(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, duplicates: bool
) -> None:
    folder, rules = tmp_path_factory.mktemp("split"), Rules(duplicates=duplicates)
    sets = split(pairs, folder, rules)
    kept = list(clean((Pair(*pair) for pair in pairs), rules, folder / "other.tsv"))
    assert Counter(pair for own in sets.values() for pair in own) == Counter(kept)
    apart = [{normalized(pair.source) for pair in own} for own in sets.values()]
    assert sum(map(len, apart)) == len(set().union(*apart))
    assert all(sets.values())
    assert split(pairs, folder, rules) == sets
    wanted = len(kept) / 10
    assert all(wanted - 1 <= len(sets[name]) <= 2 * wanted + 1 for name in ("dev", "test"))


@given(texts)
def test_the_numbers_are_those_of_the_original_file(tmp_path_factory: pytest.TempPathFactory, pairs: Pairs) -> None:
    folder = tmp_path_factory.mktemp("split")
    train = split(pairs, folder)["train"]
    numbers = [int(line) for line in read_lines(origin(folder).numbers)]
    assert [pairs[number - 1] for number in numbers] == train
    rows = [line.split("\t") for line in read_lines(origin(folder).dropped)][1:]
    assert all(tuple(row[2:]) == pairs[int(row[0]) - 1] for row in rows)


def test_dev_and_test_are_spread_over_the_whole_text(tmp_path: Path) -> None:
    sets = split(ALL_DIFFERENT, tmp_path)
    assert sets["dev"] == ALL_DIFFERENT[::10]
    assert sets["test"] == ALL_DIFFERENT[1::10]


def test_of_a_long_text_about_500_pairs_are_split_off(tmp_path: Path) -> None:
    sets = split([(f"The house number {i}.", f"A casa número {i}.") for i in range(7_000)], tmp_path)
    assert [len(own) for own in sets.values()] == [6_000, 500, 500]


def test_of_a_text_with_many_duplicates_most_is_learned_from(tmp_path: Path) -> None:
    """Of 1,000 lines with 200 different pairs."""
    sets = split([ALL_DIFFERENT[i * 7 % 200] for i in range(1_000)], tmp_path)
    assert [len(own) for own in sets.values()] == [160, 20, 20]


def test_all_translations_of_a_source_are_in_the_same_set(tmp_path: Path) -> None:
    pairs = [(f"The house number {i}.", f"A casa {j} número {i}.") for i in range(60) for j in range(10)]
    sets = split(pairs, tmp_path)
    assert [len(own) for own in sets.values()] == [480, 60, 60]
    assert [len({pair.source for pair in own}) for own in sets.values()] == [48, 6, 6]


def test_a_source_with_very_many_translations_is_learned_from(tmp_path: Path) -> None:
    """Or else a set would have hardly any other."""
    often = [("OK", f"De acordo {i}") for i in range(100)]
    sets = split([*often, *ALL_DIFFERENT], tmp_path)
    assert all(pair in sets["train"] for pair in often)
    assert [len(sets[name]) for name in ("dev", "test")] == [30, 30]


def test_what_cannot_be_learned_from_is_not_tested_either(tmp_path: Path) -> None:
    sets = split(
        [(source, source if i % 3 == 0 else target) for i, (source, target) in enumerate(ALL_DIFFERENT)], tmp_path
    )
    assert [len(own) for own in sets.values()] == [160, 20, 20]
    assert all(source != target for own in sets.values() for source, target in own)


def test_what_somebody_holds_out_is_in_no_set(tmp_path: Path) -> None:
    sets = split(ALL_DIFFERENT, tmp_path, held_out=ALL_DIFFERENT[:50], names=("test",))
    assert [len(own) for own in sets.values()] == [225, 25]
    assert not set(ALL_DIFFERENT[:50]) & {*sets["train"], *sets["test"]}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], r"mine\.en and .*mine\.gl are empty"),
        ([("", "")] * 40, r"no pair of .*mine\.en and .*mine\.gl is left after cleaning; most were: both sides blank"),
        (ALL_DIFFERENT[:29], r"mine\.en has 29 different sentences .*at least 30 are needed"),
        (ALL_DIFFERENT[:29] * 2, r"mine\.en has 29 different sentences .*at least 30 are needed"),
    ],
)
def test_a_text_that_cannot_be_split_is_named(pairs: Pairs, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        split(pairs, tmp_path)
    assert not list(tmp_path.glob("train.source"))
