from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from qknorm.data.textfiles import read_lines
from qknorm.formats.document import Document
from qknorm.formats.table import FORMATS, open_document
from tests.journeys.conftest import Command, command

__all__ = ["command"]


class Settings(Document):
    """Lines such as `title = The house`, of which the values are translated; a format from outside of the package."""

    def __init__(self, path: Path | None) -> None:
        assert path is not None
        self.rows = [line.split(" = ") for line in read_lines(path)]

    @property
    def segments(self) -> Iterator[str]:
        return (value for _, value in self.rows)

    def written(self, translations: Iterable[str]) -> Iterator[bytes]:
        for (key, _), translation in zip(self.rows, translations, strict=True):
            yield f"{key} = {translation}\n".encode()


def test_a_new_format_is_a_class_and_its_line_in_the_table(
    command: Command, trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "settings", Settings)
    content = "title = The house is red.\nempty = \nbutton = I eat.\n"
    Path("app.settings").write_text(content)
    Path("APP.settings.gz").write_bytes(gzip.compress(content.encode()))
    texts = command("translate", str(trained_run), stdin=b"The house is red.\n\nI eat.\n").out.split("\n")
    for name in ("app.settings", "APP.settings.gz"):
        done = command("translate", str(trained_run), name)
        assert done.out == f"title = {texts[0]}\nempty = \nbutton = {texts[2]}\n", done.errors
    assert command("translate", str(trained_run), "app.settings", "--n-best", "1").out.count("\t") == 6


@pytest.mark.parametrize("name", ["a.txt", "a.en", "a"])
def test_whatever_has_no_format_is_plain_text(name: str, tmp_path: Path) -> None:
    """It is read line by line while translations are written: a stream may have no end."""
    (tmp_path / name).write_text("one\ntwo\n")
    document = open_document(tmp_path / name)
    written = document.written(line.upper() for line in document.segments)
    assert [next(written), *written] == [b"ONE\n", b"TWO\n"]
