"""From the files people have to a clean corpus, through the command line."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from qknorm.data.phrasebook import pairs
from qknorm.data.textfiles import read_lines, write_lines
from tests.caches import new_cache
from tests.journeys.conftest import Command

ENGLISH = [f"The house number {i} is red." for i in range(50)]
GALICIAN = [f"A casa número {i} é vermella." for i in range(50)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    write_lines(tmp_path / "train.en", ENGLISH)
    write_lines(tmp_path / "train.gl", GALICIAN)
    return tmp_path


def test_check_cleans_and_lists_what_it_dropped(folder: Path, command: Command) -> None:
    write_lines(folder / "train.en", [*ENGLISH, "", ENGLISH[0], "Madrid"])
    write_lines(folder / "train.gl", [*GALICIAN, "algo", GALICIAN[0], "Madrid"])
    write_lines(folder / "dev.en", ENGLISH[10:12])
    write_lines(folder / "dev.gl", GALICIAN[10:12])
    files = ("train.en", "train.gl", "--dev", "dev.en", "dev.gl")
    done = command("data", "check", *files)
    assert done.code == 0, done.errors
    assert re.search(r"kept +48\b", done.out)
    assert list(read_lines(folder / "checked" / "train.gl")) == [*GALICIAN[:10], *GALICIAN[12:]]
    rows = [line.split("\t")[:2] for line in list(read_lines(folder / "checked" / "dropped.tsv"))[1:]]
    assert rows == [
        ["11", "also in dev or test"],
        ["12", "also in dev or test"],
        ["51", "source blank"],
        ["52", "duplicate"],
        ["53", "source equals target"],
    ]
    assert (folder / "checked" / "lengths.png").read_bytes().startswith(b"\x89PNG")
    lenient = command("data", "check", *files, "--keep-duplicates", "--keep-copies", "--tidy", "--out", "b[1]x[red]y")
    assert re.search(r"kept +50\b", lenient.out)
    assert "b[1]x[red]y: train.en" in lenient.out


def test_bad_files_get_one_sentence_and_leave_nothing(folder: Path, command: Command) -> None:
    write_lines(folder / "short.gl", GALICIAN[1:])
    (folder / "memory.tmx").write_text("<tmx><body><tu>")
    for code in ("en", "gl"):
        write_lines(folder / f"nothing.{code}", [])
    importing = ("data", "import", "memory.tmx", "--source", "en", "--target")
    for arguments, message in (
        (("data", "check", "train.en", "nowhere.gl"), "nowhere.gl does not exist"),
        (("data", "check", "nothing.en", "nothing.gl"), "nothing.en and nothing.gl are empty"),
        (("data", "check", "train.en", "short.gl"), "seems to lack 1 before its line 1"),
        ((*importing, "gl"), "not well-formed XML"),
        ((*importing, "gl", "--out", "."), "is a folder"),
        ((*importing, "gl/x"), "not a language code"),
        ((*importing, "en"), "two languages"),
    ):
        done = command(*arguments)
        assert (done.code, message in done.errors, done.errors.count("\n")) == (2, True, 1), done.errors
    assert not [*folder.glob("checked/*"), *folder.glob("imported*")]


def test_input_is_never_written_over(folder: Path, command: Command) -> None:
    before = (folder / "train.en").read_bytes()
    done = command("data", "check", "train.en", "train.gl", "--out", ".")
    assert done.code == 2
    assert "choose another --out" in done.errors
    assert (folder / "train.en").read_bytes() == before
    (folder / "n").mkdir()
    (folder / "n" / "train.en.gz").write_bytes(gzip.compress(b"x\n" * 50))
    done = command("data", "check", "train.en", "n/train.en.gz")
    assert done.code == 2
    assert "both called train.en" in done.errors


def test_a_memory_becomes_two_files_that_overwrite_nothing_without_being_told_to(
    folder: Path, command: Command
) -> None:
    (folder / "memory.tsv").write_text("one\tun\ntwo\tdous\n")
    (folder / "mine.gl").write_text("the work of years\n")
    importing = ("data", "import", "memory.tsv", "--source", "en", "--target", "gl", "--out", "mine")
    done = command(*importing)
    assert (done.code, done.errors) == (
        2,
        "qknorm: mine.gl exists already; choose another name, or overwrite it with --force\n",
    )
    assert (folder / "mine.gl").read_text() == "the work of years\n"
    assert not (folder / "mine.en").exists()
    assert command(*importing, "--force").code == 0
    assert (folder / "mine.en").read_text() == "one\ntwo\n"
    assert (folder / "mine.gl").read_text() == "un\ndous\n"
    mistyped = command(*importing[:-1], "mien/mine")
    assert (mistyped.code, mistyped.errors) == (2, "qknorm: mien/mine.en cannot be written: there is no folder mien\n")
    assert not (folder / "mien").exists()


@pytest.mark.usefixtures("folder")
def test_corpora_are_had_by_name(command: Command) -> None:
    done = command("data", "get", "phrasebook-en-gl:5k")
    assert done.code == 0, done.errors
    assert "train 5,000, dev 2,000, test 2,000" in done.out
    where = Path(done.out.rpartition("Folder: ")[2].strip())
    assert [len(list(read_lines(where / f"train.{code}"))) for code in ("en", "gl")] == [5000, 5000]
    known = command("data", "list").out
    assert all(name in known for name in ("phrasebook-en-gl", "tatoeba-en-es", "ted-gl-en", "tinyshakespeare"))
    done = command("data", "get", "tatoba-en-es")
    assert done.code == 2
    assert "the nearest name is 'tatoeba-en-es'" in done.errors


def test_a_book_becomes_sentence_pairs(folder: Path, command: Command) -> None:
    """Paragraphs of another length on each side, one sentence that only one side has, and two that are one."""
    for code, side, size in (("en", 0, 4), ("gl", 1, 7)):
        lines = [pair[side] for pair in pairs(300)]
        if code == "gl":
            lines[100:102] = [f"{lines[100].rstrip('.?')}, {lines[101]}"]
            del lines[200]
        write_lines(folder / f"book.{code}", (" ".join(lines[at : at + size]) for at in range(0, 300, size)))
    done = command("data", "align", "book.en", "book.gl", "--out", "mine")
    assert done.code == 0, done.errors
    english, galician, confidence = (list(read_lines(folder / f"mine.{end}")) for end in ("en", "gl", "confidence"))
    assert len(english) == len(galician) == len(confidence) > 280
    assert len({*zip(english, galician, strict=True)} & {*pairs(300)}) > 280
    rows = {row.split()[-4]: [int(number) for number in row.split()[-3:]] for row in done.out.splitlines()[1:5]}
    assert [sum(column) for column in zip(*list(rows.values())[:3], strict=True)] == rows["together"]
    assert rows["together"][1:] == [300, 298]
    assert rows["sure"][0] == len(english)
    assert rows["unsure"][0] + rows["counterpart"][1] + rows["counterpart"][2] == len(
        list(read_lines(folder / "mine.unsure.tsv"))[1:]
    )
    assert command("data", "align", "book.en", "book.gl", "--out", "mine").code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "book.gl is empty; there is nothing to align"),
        (b"\x89PNG\r\n\x1a", "book.gl, line 1: byte 0x89"),
        ("A casa é vermella. ".encode() * 500, "the second text is 11 times as long as the other"),
    ],
)
def test_books_that_cannot_be_aligned_get_one_sentence(
    folder: Path, content: bytes, message: str, command: Command
) -> None:
    (folder / "book.en").write_text("The house is red. " * 50)
    (folder / "book.gl").write_bytes(content)
    done = command("data", "align", "book.en", "book.gl")
    assert done.code == 2
    assert message in done.errors
    assert done.errors.count("\n") == 1
    assert not list(folder.glob("aligned*"))


def test_suspects_are_listed_with_their_lines(folder: Path, command: Command) -> None:
    phrases = pairs(600)
    write_lines(folder / "train.en", [english for english, _ in phrases])
    write_lines(folder / "train.gl", [*(galician for _, galician in phrases[:-1]), "Un burro\tvello ."])
    done = command("data", "suspects", "train.en", "train.gl", "--most", "20")
    assert done.code == 0, done.errors
    assert done.out.count("line ") == 20
    assert "line 600, score" in done.out
    header, *rows = (line.split("\t") for line in read_lines(folder / "suspects.tsv"))
    assert header == ["line", "score", "source", "target"]
    assert sorted(int(row[0]) for row in rows) == list(range(1, 601))
    scores = [float(row[1]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert "exists already" in command("data", "suspects", "train.en", "train.gl").errors
