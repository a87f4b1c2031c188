from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from qknorm.data.batches import BatchSampler, DropoutPairs
from qknorm.data.cleaning import NO_TRANSLATION, Rules
from qknorm.data.corpus_report import DirectionReport
from qknorm.data.importers import Pair
from qknorm.data.leaks import LEAKS
from qknorm.data.pipeline import TextPipeline
from qknorm.data.prepared import Files, ParallelFiles, Prepared, PreparedSet, prepare
from qknorm.data.subwords import BOS, EOS, PAD, SIGNS, UNK, Subwords
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError

SOURCE = [f"the {colour} house number {i}" for i in range(40) for colour in ("red", "blue")]
TARGET = [f"a casa {cor} número {i}" for i in range(40) for cor in ("vermella", "azul")]


def written(folder: Path, name: str, source: list[str], target: list[str]) -> Files:
    folder.mkdir(exist_ok=True)
    write_lines(folder / f"{name}.en", source)
    write_lines(folder / f"{name}.gl", target)
    return folder / f"{name}.en", folder / f"{name}.gl"


def files(folder: Path, source: list[str] = SOURCE, target: list[str] = TARGET) -> ParallelFiles:
    """A text with dev and test sets."""
    held_out = written(folder, "held-out", ["a green house", "no house"], ["unha casa verde", "ningunha casa"])
    return ParallelFiles(*written(folder, "train", source, target), held_out, held_out)


def to_split(folder: Path, source: list[str] = SOURCE, target: list[str] = TARGET) -> ParallelFiles:
    """A text without."""
    return ParallelFiles(*written(folder, "mine", source, target))


def ready(*directions: ParallelFiles, cache: Path, merges: int = 50) -> Prepared:
    return prepare(directions, merges, "raw", Rules(), cache)


def pairs(sentences: PreparedSet) -> list[Pair]:
    return [Pair(*pair) for pair in zip(sentences.sources, sentences.targets, strict=True)]


def test_text_becomes_pieces_and_back(tmp_path: Path) -> None:
    prepared = ready(files(tmp_path), cache=tmp_path)
    (direction,) = prepared.directions
    assert direction.train.sources == SOURCE
    assert direction.dev.sources == direction.test.sources == ["a green house", "no house"]
    for own in (direction.train, direction.dev, direction.test):
        for side, lines in ((own.encoded.source, own.sources), (own.encoded.target, own.targets)):
            assert list(map(prepared.subwords.decode, side)) == lines
    assert next(iter(BatchSampler([direction.train.encoded], 256, seed=0))).target_tokens > 0


def test_the_second_time_nothing_is_learned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ready(to_split(tmp_path), cache=tmp_path)
    monkeypatch.setattr(Subwords, "learn", lambda *_: pytest.fail("learned again"))
    again = ready(to_split(tmp_path), cache=tmp_path)
    assert again.folder == first.folder
    assert again.subwords.pieces == first.subwords.pieces
    assert again.directions[0].dev.sources == first.directions[0].dev.sources


def test_other_content_or_settings_have_another_key(tmp_path: Path) -> None:
    text = files(tmp_path)
    other = written(tmp_path, "other", ["other", *SOURCE[1:]], TARGET)
    texts = [text, replace(text, dev=None), replace(text, test=None), replace(text, source=other[0])]
    keys = {ready(own, cache=tmp_path).key for own in texts}
    keys.add(ready(text, cache=tmp_path, merges=51).key)
    keys.add(prepare([text], 50, "words", Rules(), tmp_path).key)
    keys.add(prepare([text], 50, "raw", Rules(copies=False), tmp_path).key)
    for steps in (["tidy"], ["keep"]):
        keys.add(prepare([text], 50, "raw", Rules(), tmp_path, TextPipeline(steps)).key)
    keys.add(prepare([text], 50, "raw", Rules(), tmp_path, TextPipeline(["keep"], ["x"])).key)
    assert len(keys) == 10
    by_words = prepare([text], lambda words: words // 16, "raw", Rules(), tmp_path)
    assert by_words.merges == 80 * 10 // 16  # five words on each side
    assert by_words.key in keys


def test_the_key_of_a_text_stays_what_it_was(tmp_path: Path) -> None:
    """Runs of an earlier version go on only with a text of the same key."""
    text = files(tmp_path)
    assert ready(text, cache=tmp_path).key == "556e60e44725385d5788b30f"
    assert prepare([text], 50, "raw", Rules(), tmp_path, TextPipeline(["tidy"])).key == "8430983cbf3dc22a36984f3c"


class TestSplitting:
    def test_a_kept_pair_is_in_exactly_one_set(self, tmp_path: Path) -> None:
        """The numbers are those of the text's lines, and whatever was read is told of."""
        source, target = [*SOURCE[:9], "", *SOURCE[9:], SOURCE[0]], [*TARGET[:9], "algo", *TARGET[9:], TARGET[0]]
        (direction,) = ready(to_split(tmp_path, source, target), cache=tmp_path).directions
        sets = [pairs(own) for own in (direction.train, direction.dev, direction.test)]
        assert [len(own) for own in sets] == [64, 8, 8]
        assert Counter(pair for own in sets for pair in own) == Counter(map(Pair, SOURCE, TARGET))
        assert len({pair.source for own in sets for pair in own}) == 80
        lines = load_file(direction.folder / "train.safetensors")["lines"]
        assert [Pair(source[number - 1], target[number - 1]) for number in lines] == sets[0]
        assert direction.report == DirectionReport(
            read=82,
            kept=64,
            words=64 * 10,
            dropped={"source blank": 1, "duplicate": 1},
            split_off={"dev": 8, "test": 8},
            near_copies=0,
            longest_source=int(direction.train.encoded.source.lengths.max()),
        )

    def test_only_what_is_missing_is_split_off_and_what_is_given_is_in_no_other_set(self, tmp_path: Path) -> None:
        dev = written(tmp_path, "dev", SOURCE[:20], TARGET[:20])
        (direction,) = ready(replace(to_split(tmp_path), dev=dev), cache=tmp_path).directions
        assert pairs(direction.dev) == list(map(Pair, SOURCE[:20], TARGET[:20]))
        assert not {*direction.dev.sources} & {*direction.train.sources, *direction.test.sources}
        assert (len(direction.train), len(direction.test)) == (54, 6)
        assert direction.report.dropped == {"also in dev or test": 20}
        assert direction.report.split_off == {"test": 6}

    def test_what_one_direction_holds_out_the_other_does_not_learn(self, tmp_path: Path) -> None:
        """Neither what is given nor what is split off; also here, the numbers add up."""
        forth = replace(to_split(tmp_path), languages=("en", "gl"))
        back = replace(to_split(tmp_path / "back", TARGET[::-1], SOURCE[::-1]), languages=("gl", "en"))
        directions = ready(forth, back, cache=tmp_path).directions
        for (direction, other), lines in ((directions, SOURCE), (directions[::-1], TARGET[::-1])):
            held_out = {pair[::-1] for own in (other.dev, other.test) for pair in pairs(own)}
            assert not held_out & set(pairs(direction.train))
            rows = [line.split("\t") for line in read_lines(direction.folder / "dropped.tsv")][1:]
            assert all(lines[int(number) - 1] == source for number, _, source, _ in rows)
            report = direction.report
            assert {"also in dev or test": len(rows)} == report.dropped
            assert report.read == len(rows) + sum((report.split_off or {}).values()) + report.kept


def test_what_stands_in_given_sets_is_dropped_and_blank_pairs_of_them_are_left_out(tmp_path: Path) -> None:
    dev = written(tmp_path, "dev", [*SOURCE[4:6], "blank", " "], [*TARGET[4:6], "", "tamén"])
    (direction,) = ready(replace(files(tmp_path), dev=dev), cache=tmp_path).directions
    assert direction.report.dropped == {"also in dev or test": 2}
    assert direction.report.left_out == {"dev": 2, "test": 0}
    assert direction.dev.sources == SOURCE[4:6]
    nothing = written(tmp_path, "nothing", ["a", ""], ["", "b"])
    for text in (replace(files(tmp_path), dev=nothing), replace(to_split(tmp_path), test=nothing)):
        with pytest.raises(InputError, match=r"nothing\.en and .*nothing\.gl hold no pair of sentences to score"):
            ready(text, cache=tmp_path)


def test_every_set_goes_through_the_pipeline(tmp_path: Path) -> None:
    odd = written(tmp_path, "odd", [" The\u00a0house. "], ["A\u202fcasa e\u0301 vella."])
    as_it_is, tidy = (" The\u00a0house. ", "A\u202fcasa e\u0301 vella."), ("The house.", "A casa é vella.")
    for steps, expected in (([], as_it_is), (["tidy"], tidy)):
        text = replace(to_split(tmp_path, SOURCE, [f"{line} " for line in TARGET]), dev=odd)
        (direction,) = prepare([text], 50, "raw", Rules(), tmp_path, TextPipeline(steps)).directions
        assert pairs(direction.dev) == [expected]
        assert direction.test.targets[0].endswith(" ") != bool(steps)


def test_pairs_to_learn_have_signs_and_sets_to_score_by_are_as_people_read_them(tmp_path: Path) -> None:
    """Their pieces are those of the signs; the names of a pair have signs where it is learned alone."""
    source, target = [f"{line} %s Bo" for line in SOURCE], [f"{line} Bo %s" for line in TARGET]
    (direction,) = prepare(
        [to_split(tmp_path, source, target)], 50, "raw", Rules(), tmp_path, TextPipeline(["keep"])
    ).directions
    decode = Subwords.load(tmp_path / next(tmp_path.glob("prepared/*/tokenizer.json"))).decode
    for own in (direction.dev, direction.test):
        assert all("%s Bo" in line for line in own.sources)
        assert [line.replace(SIGNS[0], "%s") for line in map(decode, own.encoded.target)] == own.targets
        assert all(SIGNS[0] in decode(pieces) for pieces in own.encoded.source)
    train = direction.train
    assert not any("%s" in line for line in (*train.sources, *train.targets))
    assert 0 < sum("Bo" in line for line in train.sources) < len(train)
    assert list(map(decode, train.encoded.source)) == train.sources


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
    encoded = prepared.directions[0].train.encoded
    both = [*encoded.source.lengths, *encoded.target.lengths]
    for percentile in (0, 97.5, 100):
        assert prepared.length(percentile) == pytest.approx(np.percentile(both, percentile))


def test_several_pairs_share_one_vocabulary_in_which_the_small_one_counts(tmp_path: Path) -> None:
    small = files(tmp_path / "small", source=["жук жук"] * 2 + ["жук"], target=["insecto"] * 2 + ["o insecto"])
    prepared = ready(files(tmp_path / "large"), small, cache=tmp_path, merges=200)
    assert prepared.directions[1].train.sources == ["жук жук", "жук"]
    assert len(prepared.subwords.encode(["жук"])[0]) == 1


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([], [], "are empty"),
        (["", " "], ["a", "b"], "no pair .* is left after cleaning; most were: source blank"),
        (["no house"], ["ningunha casa"], "no pair .* is left after cleaning; most were: also in dev or test"),
        (["a"], ["b", "c"], "they must have the same number"),
    ],
)
def test_nothing_to_learn_from_is_said(source: list[str], target: list[str], message: str, tmp_path: Path) -> None:
    for text in (files(tmp_path, source, target), replace(files(tmp_path, source, target), test=None)):
        with pytest.raises(InputError, match=message):
            ready(text, cache=tmp_path / "cache")
    assert list((tmp_path / "cache" / "prepared").glob("*[!k]")) == []  # but for the lock


@pytest.mark.parametrize("name", ["corpus.json", "train.source", "train.safetensors", "dev.target"])
def test_a_file_of_the_cache_that_was_cut_is_noticed(tmp_path: Path, name: str) -> None:
    folder = ready(files(tmp_path), cache=tmp_path).folder
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is damaged .* delete the folder"):
        ready(files(tmp_path), cache=tmp_path)


def test_several_that_prepare_the_same_corpus_do_not_disturb_each_other(tmp_path: Path) -> None:
    text = to_split(tmp_path)
    with ThreadPoolExecutor(3) as pool:
        prepared = list(pool.map(lambda _: ready(text, cache=tmp_path), range(3)))
    assert len({len(own.subwords) for own in prepared}) == 1


def test_what_hardly_translates_is_dropped_with_its_line_if_that_is_asked_for(tmp_path: Path) -> None:
    text = files(tmp_path, ["a house number 9", *SOURCE], ["algo", *TARGET])
    words = replace(TestBorrowing().borrowed(tmp_path, ["a"], ["algo"]), is_word_list=True)
    judged = []

    def judge(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.float64]:
        judged.append(len(sources))
        return np.array([4.5 if target == "algo" else 3.5 for target in targets])

    for most, dropped in ((None, {}), (5.0, {}), (4.0, {NO_TRANSLATION: 1})):
        prepared = prepare([text, words], 50, "raw", Rules(max_suspicion=most), tmp_path, judge=judge)
        report = prepared.directions[0].report
        assert (report.dropped, report.read - report.kept) == (dropped, len(dropped))
        assert len(prepared.borrowed[0].train) == 1
    assert judged == [81, 81]
    assert list(read_lines(prepared.folder / "dropped.tsv"))[1].split("\t")[:2] == ["1", NO_TRANSLATION]


class TestBorrowing:
    """Text that is learned from beside one's own."""

    RELATED = tuple(f"the {colour} house number {i}" for i in range(40, 60) for colour in ("green", "grey"))
    PORTUGUESE = tuple(f"a casa {cor} número {i}" for i in range(40, 60) for cor in ("verde", "cinzenta"))

    def borrowed(self, folder: Path, source: Sequence[str], target: Sequence[str]) -> ParallelFiles:
        two = written(folder, "related", list(source), list(target))
        return ParallelFiles(*two, languages=("pt", "gl"), is_borrowed=True)

    def test_it_is_learned_from_and_nothing_of_it_is_held_out(self, tmp_path: Path) -> None:
        prepared = ready(files(tmp_path), self.borrowed(tmp_path, self.RELATED, self.PORTUGUESE), cache=tmp_path)
        (own,), (extra,) = prepared.directions, prepared.borrowed
        assert prepared.texts == [own, extra]
        assert pairs(extra.train) == list(map(Pair, self.RELATED, self.PORTUGUESE))
        assert not extra.dev
        assert not extra.test
        assert prepared.code(own) == ""
        assert prepared.code(extra) == "extra-1"
        piece = prepared.subwords.encode(["cinzenta"])[0][-1]
        assert prepared.target_pieces()[piece]
        assert not prepared.target_pieces(among=[0])[piece]
        assert ready(files(tmp_path), self.borrowed(tmp_path, self.RELATED, self.PORTUGUESE), cache=tmp_path)

    def test_no_sentence_that_is_held_out_is_in_it_on_either_side(self, tmp_path: Path) -> None:
        held = written(tmp_path, "held", ["a house that is held out"], ["unha casa que non se aprende"])
        own = ParallelFiles(*written(tmp_path, "train", SOURCE, TARGET), held, held)
        source = [
            "A house that is held out",
            "other text",
            *self.RELATED,
            "not a house that is held out",
        ]
        target = ["other text", "unha casa que non se aprende", *self.PORTUGUESE, "other text"]
        (extra,) = ready(own, self.borrowed(tmp_path, source, target), cache=tmp_path).borrowed
        assert extra.train.sources == source[2:]
        assert extra.report.dropped == {LEAKS: 2}
        assert extra.report.near_copies == 1
        _, *rows = (row.split("\t")[:2] for row in read_lines(extra.folder / "dropped.tsv"))
        assert rows == [["1", LEAKS], ["2", LEAKS]]

    def test_in_a_list_of_words_names_are_their_own_translations(self, tmp_path: Path) -> None:
        names = [f"Galicia {number}" for number in range(20)]
        extra = self.borrowed(tmp_path, [*names, "", "house"], [*names, "nada", "casa"])
        keep, cache, keys = TextPipeline(["keep"]), tmp_path / "cache", set()
        for text, kept in ((extra, []), (replace(extra, is_word_list=True), names)):
            prepared = prepare([files(tmp_path), text], 50, "raw", Rules(), cache, keep)
            assert prepared.borrowed[0].train.sources == [*kept, "house"]
            assert prepared.borrowed[0].report.dropped["source blank"] == 1
            keys.add(prepared.key)
        assert len(keys) == 2

    def test_ones_own_text_is_kept_apart_if_that_is_asked_for(self, tmp_path: Path) -> None:
        held = written(tmp_path, "held", [SOURCE[3]], ["outra cousa"])
        own = ParallelFiles(*written(tmp_path, "train", SOURCE, TARGET), held, held)
        for apart in (False, True):
            (direction,) = prepare([own], 50, "raw", Rules(apart=apart), tmp_path).directions
            assert (SOURCE[3] in direction.train.sources) == (not apart)

    def test_it_is_written_as_ones_own_is(self, tmp_path: Path) -> None:
        """A language that is not one's own has the convention of one's source."""
        own = files(
            tmp_path, [f"{line} , &quot; no &quot; ." for line in SOURCE], [f"{line} , non ." for line in TARGET]
        )
        extra = self.borrowed(tmp_path, [f'{line}, "no".' for line in self.RELATED], self.PORTUGUESE)
        (text,) = prepare([own, extra], 50, "words", Rules(), tmp_path).borrowed
        assert text.train.sources == [f"{line} , &quot; no &quot; ." for line in self.RELATED]
