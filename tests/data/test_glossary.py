"""Terms: files of them, and where they stand in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.data.glossary import Glossary, read_entries, read_glossary
from qknorm.errors import InputError

TERMS = {"house": "casa", "red house": "casa vermella", "NATO": "OTAN"}


@pytest.mark.parametrize(
    "content",
    [
        "house\tcasa\nred house\tcasa vermella\nNATO\tOTAN\n",
        "\ufeffhouse;casa\r\nred  house;casa vermella\r\n\r\nNATO;OTAN;a note\r\n",
        'source,target\nhouse,casa\n"red house","casa vermella"\nNATO,OTAN\n,\n',
        "EN\tgl\nhouse\tcasa\nred house\tcasa vermella\nNATO\tOTAN",
        "gl;en\ncasa;house\ncasa vermella;red house\nOTAN;NATO\n",
    ],
)
def test_a_table_with_or_without_titles(tmp_path: Path, content: str) -> None:
    (tmp_path / "terms").write_text(content)
    assert read_glossary(tmp_path / "terms", "en", "gl").terms == TERMS


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "terms holds no term; each line has a term and its translation"),
        ("source\ttarget\n\n", "terms holds no term"),
        ("house\tcasa\nhouse\tcasa\n", "terms, line 2: 'house' stands in line 1, too$"),
        ("house\tcasa\n\nhouse\tfogar\n", "terms, line 3: 'house' stands in line 1, too, where it is 'casa': only one"),
        ("house\tcasa\nred\n", "terms, line 2: 'red' has no translation"),
        ("house\tcasa\n\tred\n", "terms, line 2: 'red' translates nothing"),
        ("house\t" + "casa " * 50, "terms, line 1: a term of more than 200 characters"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "terms").write_text(content)
    with pytest.raises(InputError, match=problem):
        read_glossary(tmp_path / "terms", "en", "gl")


def test_a_list_of_words_may_have_several_translations_of_one(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("gl,en\nbanco,bank\n\nribeira,bank\nunha\n")
    entries = list(read_entries(tmp_path / "words", "en", "gl"))
    assert entries == [(2, "bank", "banco"), (4, "bank", "ribeira"), (5, "", "unha")]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("The house, a greenhouse and houses", ["house"]),
        ("RED  House of cards", ["RED  House", "House"]),
        ("Nato, NATO", ["NATO"]),
        ("C++ and C", ["C++"]),
        ("ein Café, ein Cafe\u0301", ["Café", "Cafe\u0301"]),
        ("これは東京都です", ["東京"]),
        ("हिन्दी हिन", ["हिन"]),
        ("", []),
    ],
)
def test_whole_words_are_found_the_longest_first(line: str, found: list[str]) -> None:
    glossary = Glossary({**TERMS, "C++": "C++", "café": "Café", "東京": "Tokio", "हिन": "x"})
    spans = list(glossary.find(line))
    assert [line[start:end] for start, end in spans] == found
    assert all(glossary.translation(text) for text in found)
