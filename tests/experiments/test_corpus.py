from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.corpus import find_corpus
from tests.phrases import write_phrases


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "neither a parallel corpus"),
        ("tinyshakespeare", "neither a parallel corpus"),
        (".", "needs one train file in each of two languages"),
    ],
)
def test_what_is_no_corpus(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        find_corpus(name)


def test_a_folder_says_by_its_name_which_language_is_the_source(tmp_path: Path) -> None:
    for name, languages in (("talks-gl-en", ["gl", "en"]), ("talks", ["en", "gl"])):
        (tmp_path / name).mkdir()
        write_phrases(tmp_path / name, train=4, held_out=2)
        assert find_corpus(str(tmp_path / name)).data["languages"] == languages
    (tmp_path / "talks" / "dev.gl").unlink()
    with pytest.raises(InputError, match=r"has no dev\.gl"):
        find_corpus(str(tmp_path / "talks"))
