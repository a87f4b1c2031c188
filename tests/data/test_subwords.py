from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from qknorm.data.subwords import BOS, EOS, PAD, SIGNS, SPECIAL_PIECES, UNK, Scheme, Subwords, looks_tokenized
from qknorm.errors import InputError

LINES = [
    "the low house is lower than the newest house",
    "a casa baixa é máis baixa que a casa máis nova",
    "the newer the lower , the wider the newer",
    "lowest newest widest",
] * 3

both_schemes = pytest.mark.parametrize("scheme", ["words", "raw"])


@pytest.fixture(scope="module")
def raw() -> Subwords:
    return Subwords.learn(LINES, 60, "raw")


@pytest.fixture(scope="module")
def words() -> Subwords:
    return Subwords.learn(LINES, 60, "words")


any_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))


@given(line=any_line, dropout=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 1000))
@example("", 0.1, 0)
@example("  two  spaces  ", 0.1, 0)
@example("😀👩‍👩‍👧 🇪🇸 مرحبا שלום a\u0302\u0323 ệ 𝕳𝖊", 0.5, 0)
@example("no-break\u00a0thin\u2009line\u2028next\x85tab\tff\f\x00\r", 0.5, 0)
@example("▁ underline ▁▁ \ue000 \ue0001 \ue0000", 0.5, 0)
@example("<unk> <s> </s> <pad> <0x41> </w>", 0.5, 0)
def test_raw_text_survives_the_round_trip(raw: Subwords, words: Subwords, line: str, dropout: float, seed: int) -> None:
    """Dropout changes the pieces and not the text; without it both encoders agree."""
    assert raw.decode(raw.encode([line])[0]) == line
    assert raw.decode(raw.encode_with_dropout(line, dropout, random.Random(seed))) == line
    for subwords in (raw, words):
        assert subwords.encode_with_dropout(line, 0.0, random.Random(seed)) == subwords.encode([line])[0]


@both_schemes
def test_a_sign_is_a_piece_by_itself_whatever_it_touches(scheme: Scheme) -> None:
    sign, other = SIGNS[0], SIGNS[1]
    lines = [f"the {sign} house{sign} {sign}the house {other}{sign} lower"] * 5
    subwords = Subwords.learn(lines, 60, scheme)
    alone = [piece for piece in subwords.pieces if {sign, other} & {*piece}]
    assert {piece.removesuffix("</w>").removeprefix("▁") for piece in alone} == {sign, other}
    assert len(alone) == 4, "in the middle of a word, and where one ends or begins"
    for line in (*lines, f"{sign} {other}", f"house{other}house"):
        (pieces,) = subwords.encode([line])
        assert subwords.decode(pieces) == line
        assert sum(subwords.pieces[number] in alone for number in pieces) == line.count(sign) + line.count(other)
    assert subwords.encode(["the house"])[0] == subwords.encode([f"{sign} the house"])[0][-2:]


class TestDropout:
    def test_it_is_drawn_from_the_generator_alone(self, words: Subwords) -> None:
        line = " ".join(LINES)
        drawn = [words.encode_with_dropout(line, 0.3, random.Random(seed)) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1]
        assert drawn[0] != drawn[2]

    def test_more_dropout_gives_more_pieces_and_all_of_it_characters(self, words: Subwords) -> None:
        line = LINES[0]
        counts = [len(words.encode_with_dropout(line, dropout, random.Random(0))) for dropout in (0.0, 0.4, 1.0)]
        assert counts[0] < counts[1] < counts[2] == len(line.replace(" ", ""))


class TestWords:
    def test_pieces_that_end_a_word_are_marked(self, words: Subwords) -> None:
        pieces = [words.pieces[number] for number in words.encode(["newest xhouse"])[0]]
        assert pieces == ["newest</w>", "x", "house</w>"]

    def test_tokenised_text_survives_but_for_runs_of_spaces_and_unknown_characters(self, words: Subwords) -> None:
        for line in LINES:
            assert words.decode(words.encode([line])[0]) == line
        assert words.decode(words.encode(["  the   house "])[0]) == "the house"
        (numbers,) = words.encode(["the ж house"])
        assert words.decode(numbers) == "the ⁇ house"
        assert numbers[words.word_numbers(numbers).index(1)] == UNK

    def test_spaces_of_another_kind_do_not_separate_and_private_characters_end_no_word(self) -> None:
        for line in ("a\u00a0b c", "a\U000f0000b \U000f0001"):
            learned = Subwords.learn([line] * 5, 10, "words")
            assert learned.decode(learned.encode([line])[0]) == line


class TestLearning:
    @both_schemes
    def test_special_pieces_come_first_and_frequent_words_become_one(self, scheme: Scheme) -> None:
        few, more, most = (Subwords.learn(LINES, merges, scheme) for merges in (5, 15, 200))
        assert len(more) - len(few) == 10
        assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
        assert tuple(few.pieces[:4]) == SPECIAL_PIECES
        assert len(set(most.pieces)) == len(most)
        assert len(most.encode(["house"])[0]) == 1
        assert most.decode([BOS, *most.encode(["the house"])[0], EOS, PAD, PAD]) == "the house"

    def test_neither_hash_seed_nor_threads_matter(self) -> None:
        code = (
            "import hashlib, random; from qknorm.data.subwords import Subwords; rng = random.Random(0);"
            "lines = [' '.join(''.join(chr(97 + int(rng.random() * 8)) for _ in range(5)) for _ in range(9)) "
            "for _ in range(400)];"
            "both = [Subwords.learn(lines, 300, scheme) for scheme in ('words', 'raw')];"
            "found = [(s.pieces, s._ranks, s.encode(lines)) for s in both];"
            "print(hashlib.sha256(repr(found).encode()).hexdigest())"
        )
        digests = set()
        for seed, threads in (("0", "1"), ("1", "7")):
            environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
            digests.add(done.stdout)
        assert len(digests) == 1
        assert digests != {""}


@both_schemes
@pytest.mark.parametrize("reserved", ["<pad>", "<unk>", "<s>", "</s>", "<0x41>", "</w>"])
def test_text_that_looks_like_a_reserved_piece_stays_text(scheme: Scheme, reserved: str) -> None:
    lines = [f"abcd{reserved}efgh {reserved} {reserved}x"] * 50
    subwords = Subwords.learn(lines, 40, scheme)
    (numbers,) = subwords.encode(lines[:1])
    assert not {PAD, UNK, BOS, EOS} & set(numbers)
    assert subwords.decode(numbers) == lines[0]
    assert subwords.encode_with_dropout(lines[0], 0.0, random.Random(0)) == numbers


@both_schemes
def test_all_that_dropout_can_give_is_known(scheme: Scheme) -> None:
    subwords = Subwords.learn(LINES, 60, scheme)
    used = {number for line in subwords.encode(LINES) for number in line}
    rng = random.Random(0)
    drawn = {number for _ in range(200) for line in LINES for number in subwords.encode_with_dropout(line, 0.4, rng)}
    assert drawn - used
    assert drawn <= subwords.within(LINES)
    assert not {PAD, BOS} & subwords.within(["<pad> <s>"]), "a text that spells them does not mean them"


def test_a_skipped_merge_makes_room_for_another() -> None:
    """b joins a before it can join c, unless dropout lets it: "bc" is no part of what "abcd" usually gives."""
    subwords = Subwords.learn(["abx"] * 9 + ["bcx"] * 5, 10, "raw")
    assert subwords.pieces.index("bc") not in subwords.encode(["abcd"])[0]
    drawn = {n for seed in range(50) for n in subwords.encode_with_dropout("abcd", 0.5, random.Random(seed))}
    assert subwords.pieces.index("bc") in drawn
    assert drawn <= subwords.within(["abcd"])


class TestFiles:
    @both_schemes
    def test_a_saved_vocabulary_is_the_same(self, tmp_path: Path, scheme: Scheme) -> None:
        subwords = Subwords.learn(LINES, 30, scheme)
        subwords.save(tmp_path / "tokenizer.json")
        loaded = Subwords.load(tmp_path / "tokenizer.json")
        assert loaded.scheme == scheme
        assert loaded.pieces == subwords.pieces
        assert loaded.encode(LINES) == subwords.encode(LINES)

    def test_the_tokenizers_library_reads_it(self, tmp_path: Path, words: Subwords) -> None:
        words.save(tmp_path / "tokenizer.json")
        theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert theirs.encode("the newest house").ids == words.encode(["the newest house"])[0]
        assert theirs.decode(words.encode(["the newest house"])[0]) == "the newest house"

    def test_files_that_are_none_are_named(self, tmp_path: Path, words: Subwords) -> None:
        with pytest.raises(InputError, match="does not exist"):
            Subwords.load(tmp_path / "tokenizer.json")
        words.save(tmp_path / "tokenizer.json")
        whole = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
        for content in ("", "{}", whole[: len(whole) // 2], json.dumps([1])):
            (tmp_path / "broken.json").write_text(content, encoding="utf-8")
            with pytest.raises(InputError, match=r"broken\.json is damaged"):
                Subwords.load(tmp_path / "broken.json")


@pytest.mark.parametrize(
    ("scheme", "line"),
    [("words", "the cat eats bread ."), ("raw", "The cat eats bread."), ("raw", "¿Qué?"), ("words", "")],
)
def test_pieces_know_their_words(scheme: Scheme, line: str) -> None:
    """Joined by their words, the pieces give the words that spaces separate."""
    subwords = Subwords.learn(["the cat eats bread .", "The cat eats  bread."], 8, scheme)
    (numbers,) = subwords.encode([line])
    pieces_of: dict[int, list[int]] = {}
    for number, word in zip(numbers, subwords.word_numbers(numbers), strict=True):
        pieces_of.setdefault(word, []).append(number)
    assert list(pieces_of) == list(range(len(line.split())))
    assert [subwords.decode(pieces) for pieces in pieces_of.values()] == line.split()


@pytest.mark.parametrize(
    ("lines", "tokenized"),
    [
        (["I see , he said , and went .", "Mr. Smith is here , too ."], True),
        (["I see, he said.", "It costs 1.5 euros."], False),
        (["no signs here", ""], False),
        ([], False),
        (["... and so on ."], True),
    ],
)
def test_tokenised_text_has_spaces_before_its_signs(lines: list[str], tokenized: bool) -> None:
    assert looks_tokenized(lines * 3) is tokenized


NEW = ["дом ниже , чем новый дом", "ñandú lower ñandú", "the ниже house", "ж"] * 2


@both_schemes
def test_a_vocabulary_is_extended_and_old_text_stays_what_it_was(
    scheme: Scheme, raw: Subwords, words: Subwords
) -> None:
    """New words become few pieces, of which the old ones keep their numbers; a letter that is seen once is not one."""
    before = raw if scheme == "raw" else words
    after = before.extended([*NEW, "щ"], 200)
    assert after.pieces[: len(before)] == before.pieces
    assert after.encode(LINES) == before.encode(LINES)
    assert after.encode(["newest casa"]) == before.encode(["newest casa"])
    assert [after.decode(pieces) for pieces in after.encode(NEW)] == NEW
    assert len(after.encode(["дом"])[0]) == 1
    assert "▁ñan" in after.pieces if scheme == "raw" else "ña" in after.pieces  # with what is beside the new letter
    assert not any("щ" in piece for piece in after.pieces)
    assert after.extended(NEW, 200) is after
    assert after.encode_with_dropout("дом", 0.0, random.Random(0)) == after.encode(["дом"])[0]


@both_schemes
def test_a_sign_that_is_new_is_a_piece_by_itself(scheme: Scheme, raw: Subwords, words: Subwords) -> None:
    after = (raw if scheme == "raw" else words).extended([f"дом{SIGNS[0]} {SIGNS[0]}дом {SIGNS[0]}"] * 5, 60)
    assert {piece.strip("▁").removesuffix("</w>") for piece in after.pieces if SIGNS[0] in piece} == {SIGNS[0]}
    assert ("▁" + SIGNS[0] in after.pieces) == (scheme == "raw")


@both_schemes
def test_a_new_piece_is_spelled_in_those_that_were_there(scheme: Scheme, raw: Subwords, words: Subwords) -> None:
    before = raw if scheme == "raw" else words
    piece, parts = ("▁ña", ["▁", "<0xC3>", "<0xB1>", "a"]) if scheme == "raw" else ("ña", ["a"])
    assert [before.pieces[number] for number in before.spelling(piece)] == parts
    assert before.spelling(before.pieces[-1]) == [len(before) - 1]


def test_a_vocabulary_with_gaps_cannot_be_extended(tmp_path: Path, raw: Subwords) -> None:
    raw.save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["vocab"][raw.pieces[-1]] += 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="cannot be extended"):
        Subwords.load(tmp_path / "tokenizer.json").extended(NEW, 10)
