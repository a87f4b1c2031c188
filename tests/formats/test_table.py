from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.formats.table import open_document


@pytest.mark.parametrize("name", ["a.txt", "a.en", "a"])
def test_whatever_has_no_format_is_plain_text(name: str, tmp_path: Path) -> None:
    """It is read line by line while translations are written: a stream may have no end."""
    (tmp_path / name).write_text("one\ntwo\n")
    document = open_document(tmp_path / name)
    written = document.written(line.upper() for line in document.segments)
    assert [next(written), *written] == [b"ONE\n", b"TWO\n"]
