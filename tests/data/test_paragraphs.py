from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from qknorm.data.paragraphs import read_paragraphs, read_sentences
from qknorm.errors import InputError

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def write_docx(path: Path, document: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("word/document.xml", document)


def test_each_line_is_a_paragraph(tmp_path: Path) -> None:
    (tmp_path / "book").write_text("Title\n\nOne. Two.\nThree\u00a0 four.\n")
    assert read_paragraphs(tmp_path / "book") == ["Title", "One. Two.", "Three four."]
    assert read_sentences(tmp_path / "book") == ["Title", "One.", "Two.", "Three four."]


def test_lines_that_were_broken_where_they_were_full_are_joined(tmp_path: Path) -> None:
    (tmp_path / "book").write_text("It was the best of\ntimes, it was the\nworst of times, it\nwas.\n\nThe end.\n")
    assert read_paragraphs(tmp_path / "book") == [
        "It was the best of times, it was the worst of times, it was.",
        "The end.",
    ]


def test_paragraphs_of_a_word_document(tmp_path: Path) -> None:
    runs = "<w:p><w:r><w:t>One</w:t></w:r><w:r><w:tab/><w:t>two.</w:t></w:r></w:p><w:p/>"
    cell = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Three</w:t><w:br/></w:r></w:p></w:tc></w:tr></w:tbl>"
    write_docx(tmp_path / "book.docx", f"<w:document {WORD}><w:body>{runs}{cell}</w:body></w:document>")
    assert read_paragraphs(tmp_path / "book.docx") == ["One two.", "Three"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("<w:document", "damaged Word document"),
        (f'<!DOCTYPE a [<!ENTITY b "c">]><w:document {WORD}/>', "damaged Word document"),
        (f"<w:document {WORD}><w:p><w:t>" + "a" * 5_000_000, "would unpack to 5,000,"),
        (f"<w:document {WORD}/>", "is empty"),
    ],
)
def test_word_documents_that_cannot_be_read_are_refused(tmp_path: Path, document: str, message: str) -> None:
    write_docx(tmp_path / "book.docx", document)
    with pytest.raises(InputError, match=message):
        read_paragraphs(tmp_path / "book.docx")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b" \n\n", "is empty"), (b"ab\x00c\n", "NUL byte"), (b"\x89PNG\r\n", "not UTF-8")],
)
def test_what_is_not_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "book").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_paragraphs(tmp_path / "book")


def test_a_zip_that_is_not_a_word_document_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "book.docx", "w") as packed:
        packed.writestr("a.txt", "a")
    with pytest.raises(InputError, match=r"not a Word document.*word/document\.xml"):
        read_paragraphs(tmp_path / "book.docx")
