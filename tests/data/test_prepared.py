from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qknorm.data.batches import BatchSampler, DropoutPairs
from qknorm.data.cleaning import Rules
from qknorm.data.prepared import ParallelFiles, Prepared, prepare
from qknorm.data.splits import Origin
from qknorm.data.subwords import BOS, EOS, PAD, UNK, Subwords
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError

SOURCE = [f"the {colour} house number {i}" for i in range(40) for colour in ("red", "blue")]
TARGET = [f"a casa {cor} número {i}" for i in range(40) for cor in ("vermella", "azul")]


def files(folder: Path, name: str = "train", source: list[str] = SOURCE, target: list[str] = TARGET) -> ParallelFiles:
    folder.mkdir(exist_ok=True)
    write_lines(folder / f"{name}.en", source)
    write_lines(folder / f"{name}.gl", target)
    return ParallelFiles(folder / f"{name}.en", folder / f"{name}.gl")


def ready(*directions: ParallelFiles, cache: Path, merges: int = 50) -> Prepared:
    return prepare(directions, merges, "raw", Rules(), cache)


def test_text_becomes_pieces_and_back(tmp_path: Path) -> None:
    prepared = ready(files(tmp_path), cache=tmp_path)
    (direction,) = prepared.directions
    assert direction.sources == SOURCE
    decoded = [
        prepared.subwords.decode(direction.encoded.target[row].tolist()) for row in range(len(direction.encoded))
    ]
    assert decoded == TARGET
    assert next(iter(BatchSampler([direction.encoded], 256, seed=0))).target_tokens > 0


def test_the_second_time_nothing_is_learned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ready(files(tmp_path), cache=tmp_path)
    monkeypatch.setattr(Subwords, "learn", lambda *_: pytest.fail("learned again"))
    again = ready(files(tmp_path), cache=tmp_path)
    assert again.folder == first.folder
    assert again.subwords.pieces == first.subwords.pieces


def test_other_content_or_settings_have_another_key(tmp_path: Path) -> None:
    folders = {
        ready(files(tmp_path), cache=tmp_path).folder,
        ready(files(tmp_path), cache=tmp_path, merges=51).folder,
        prepare([files(tmp_path)], 50, "raw", Rules(nfc=True), tmp_path).folder,
        prepare([files(tmp_path)], 50, "raw", Rules(tidy=True), tmp_path).folder,
        ready(files(tmp_path, source=["other", *SOURCE[1:]]), cache=tmp_path).folder,
    }
    assert len(folders) == 5


def test_the_key_of_a_text_stays_what_it_was_when_rules_are_added() -> None:
    """Runs of an earlier version go on only with a text of the same key."""
    assert repr(Rules()) == (
        "Rules(max_characters=2000, max_ratio=6.0, control_characters=True, duplicates=True, copies=True, "
        "held_out=True, nfc=False)"
    )


def test_what_was_dropped_is_told(tmp_path: Path) -> None:
    train = files(tmp_path, source=[*SOURCE, "", SOURCE[0]], target=[*TARGET, "algo", TARGET[0]])
    dev = files(tmp_path, "dev", SOURCE[4:6], TARGET[4:6])
    train = ParallelFiles(train.source, train.target, ((dev.source, dev.target),))
    prepared = ready(train, cache=tmp_path)
    assert prepared.directions[0].report == {
        "read": 82,
        "kept": 78,
        "words": 78 * 10,  # five on each side
        "dropped": {"also in dev or test": 2, "source blank": 1, "duplicate": 1},
        "longest_source": max(map(len, prepared.subwords.encode(prepared.directions[0].sources))),
    }
    assert len((prepared.folder / "dropped.tsv").read_text(encoding="utf-8").splitlines()) == 5


def test_a_text_that_was_split_off_is_told_of_by_its_original(tmp_path: Path) -> None:
    """By the lines of that, with what was dropped from it before, and by its name."""
    train = files(tmp_path, source=SOURCE[:3], target=TARGET[:3])
    origin = Origin(tmp_path / "mine.en", tmp_path / "mine.gl", tmp_path / "train.lines", tmp_path / "dropped.tsv")
    write_lines(origin.numbers, ["2", "10", "11"])
    write_lines(origin.dropped, ["line\treason\tsource\ttarget", "9\tduplicate\ta\tb", "12\tduplicate\ta\tb"])
    dev = files(tmp_path, "dev", SOURCE[1:2], TARGET[1:2])
    train = replace(train, origin=origin, held_out=((dev.source, dev.target),))
    (direction,) = ready(train, cache=tmp_path).directions
    rows = [line.split("\t")[:2] for line in read_lines(direction.folder / "dropped.tsv")]
    assert rows[1:] == [["9", "duplicate"], ["10", "also in dev or test"], ["12", "duplicate"]]
    assert (direction.report["read"], direction.report["kept"]) == (5, 2)
    assert direction.report["dropped"] == {"also in dev or test": 1, "duplicate": 2}
    nothing = replace(train, held_out=((train.source, train.target),))
    with pytest.raises(InputError, match=r"no pair of .*mine\.en and .*mine\.gl is left after cleaning"):
        ready(nothing, cache=tmp_path)


def test_the_same_text_split_off_other_lines_has_another_key(tmp_path: Path) -> None:
    train = files(tmp_path, source=SOURCE[:2], target=TARGET[:2])
    origin = Origin(tmp_path / "mine.en", tmp_path / "mine.gl", tmp_path / "train.lines", tmp_path / "dropped.tsv")
    write_lines(origin.dropped, ["line\treason\tsource\ttarget"])
    folders = set()
    for numbers in (["1", "2"], ["1", "3"]):
        write_lines(origin.numbers, numbers)
        folders.add(ready(replace(train, origin=origin), cache=tmp_path).folder)
    assert len(folders) == 2


def test_pieces_of_the_source_alone_are_masked_out_of_the_target(tmp_path: Path) -> None:
    prepared = ready(files(tmp_path, source=[line + " жж" for line in SOURCE]), cache=tmp_path, merges=10)
    used = prepared.target_pieces()
    assert used[[UNK, EOS]].all()
    assert not used[[PAD, BOS]].any()
    assert not used[prepared.subwords.pieces.index("ж")]
    assert used[prepared.subwords.pieces.index("z")]


def test_with_dropout_every_piece_that_can_be_drawn_may_be_said(tmp_path: Path) -> None:
    prepared = ready(files(tmp_path), cache=tmp_path, merges=200)
    plain, closed = prepared.target_pieces(), prepared.target_pieces(bpe_dropout=True)
    _, target = DropoutPairs(prepared.subwords, SOURCE, TARGET, 0.3, seed=0).in_pass(0)
    assert closed[target.numbers].all()
    assert not plain[target.numbers].all()


def test_the_length_for_g_is_a_percentile_over_both_sides(tmp_path: Path) -> None:
    prepared = ready(files(tmp_path), cache=tmp_path)
    both = [*prepared.directions[0].encoded.source.lengths, *prepared.directions[0].encoded.target.lengths]
    assert prepared.length(100) == max(both)
    assert prepared.length(0) == min(both)
    assert prepared.length() == pytest.approx(np.percentile(both, 97.5))


def test_several_pairs_share_one_vocabulary_in_which_the_small_one_counts(tmp_path: Path) -> None:
    small = files(tmp_path / "small", source=["жук жук"] * 2 + ["жук"], target=["insecto"] * 2 + ["o insecto"])
    prepared = ready(files(tmp_path / "large"), small, cache=tmp_path, merges=200)
    assert len(prepared.directions) == 2
    assert prepared.directions[1].sources == ["жук жук", "жук"]
    assert len(prepared.subwords.encode(["жук"])[0]) == 1


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([], [], "are empty"),
        (["", " "], ["a", "b"], "no pair .* is left after cleaning; most were: source blank"),
        (["a"], ["b", "c"], "they must have the same number"),
    ],
)
def test_nothing_to_learn_from_is_said(source: list[str], target: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        ready(files(tmp_path, source=source, target=target), cache=tmp_path / "cache")
    assert list((tmp_path / "cache" / "prepared").glob("*[!k]")) == []  # but for the lock


def test_a_disk_that_fills_while_caching_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = files(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="the disk is full"):
        ready(train, cache=tmp_path / "cache")
    assert list((tmp_path / "cache" / "prepared").glob("*[!k]")) == []  # but for the lock


def test_a_damaged_cache_is_named(tmp_path: Path) -> None:
    folder = ready(files(tmp_path), cache=tmp_path).folder
    whole = (folder / "train.safetensors").read_bytes()
    (folder / "train.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is damaged .* delete the folder"):
        ready(files(tmp_path), cache=tmp_path)


@pytest.mark.parametrize("name", ["corpus.json", "train.source"])
def test_a_file_of_the_cache_that_was_cut_is_noticed(tmp_path: Path, name: str) -> None:
    folder = ready(files(tmp_path), cache=tmp_path).folder
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is damaged .* delete the folder"):
        ready(files(tmp_path), cache=tmp_path)


def test_processes_that_prepare_the_same_corpus_do_not_disturb_each_other(tmp_path: Path) -> None:
    files(tmp_path)
    code = (
        "import sys; from pathlib import Path; from qknorm.data.cleaning import Rules;"
        "from qknorm.data.prepared import ParallelFiles, prepare; folder = Path(sys.argv[1]);"
        "files = ParallelFiles(folder / 'train.en', folder / 'train.gl');"
        "print(len(prepare([files], 50, 'raw', Rules(), folder).subwords))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [process.communicate()[0] for process in started]
    assert len(set(outputs)) == 1
    assert [process.returncode for process in started] == [0, 0, 0]
