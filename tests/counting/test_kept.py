from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from qknorm.counting import alignments, kept
from qknorm.counting.kept import counted, translations
from qknorm.data.cleaning import Rules
from qknorm.data.prepared import ParallelFiles, Prepared, prepare
from qknorm.data.textfiles import write_lines
from qknorm.screen import Screen

QUIET = Screen(quiet=True)


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    colours, things = {"red": "vermello", "blue": "azul"}, {"car": "coche", "book": "libro", "hat": "sombreiro"}
    lines = [(f"a {a} {b} {i}", f"un {colours[a]} {things[b]} {i}") for i in range(5) for a in colours for b in things]
    write_lines(tmp_path / "train.en", (source for source, _ in lines))
    write_lines(tmp_path / "train.gl", (target for _, target in lines))
    return prepare([ParallelFiles(tmp_path / "train.en", tmp_path / "train.gl")], 100, "words", Rules(), tmp_path)


def file_of(prepared: Prepared) -> Path:
    return prepared.folder / "translations.safetensors"


def test_words_start_near_their_translations(prepared: Prepared) -> None:
    vectors = counted(prepared, 16, 0, QUIET)
    (book,), (libro,), (azul,) = prepared.subwords.encode(["book", "libro", "azul"])
    assert vectors.shape == (len(prepared.subwords), 16)
    assert vectors[book] @ vectors[libro] > vectors[book] @ vectors[azul]


def test_the_second_time_nothing_is_counted(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    first = translations(prepared, QUIET)
    monkeypatch.setattr(alignments, "count_translations", lambda *_: pytest.fail("counted again"))
    again = translations(prepared, QUIET)
    np.testing.assert_array_equal(again.toarray(), first.toarray())
    assert again.dtype == np.float32


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    other_bit = content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes({"cut short": content[:-9], "a bit": other_bit, "empty": b"", "not ours": b"{}" * 50}[how])


@pytest.mark.parametrize("how", ["cut short", "a bit", "empty", "not ours"])
def test_a_damaged_file_is_counted_anew(prepared: Prepared, how: str) -> None:
    first = translations(prepared, QUIET)
    whole = file_of(prepared).read_bytes()
    damage(file_of(prepared), how)
    np.testing.assert_array_equal(translations(prepared, QUIET).toarray(), first.toarray())
    assert file_of(prepared).read_bytes() == whole


def test_what_was_counted_in_another_way_is_counted_anew(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    translations(prepared, QUIET)
    before = file_of(prepared).read_bytes()
    monkeypatch.setattr(kept, "_FORMAT", 0)
    translations(prepared, QUIET)
    assert file_of(prepared).read_bytes() != before


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_shown_to_a_person_and_to_nobody_else(prepared: Prepared, terminal: bool) -> None:
    screen = io.StringIO()
    translations(prepared, Screen(file=screen, force_terminal=terminal))
    assert ("counting word pairs" in screen.getvalue()) == terminal
    assert terminal or not screen.getvalue()
