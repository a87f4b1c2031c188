"""What is installed: a wheel has every file that the code reads, and an index page shows a README that works there."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project as setuptools sees it."""
    pytest.importorskip("setuptools", reason="setuptools says what a wheel holds")
    from distutils.core import run_setup

    monkeypatch.chdir(ROOT)
    return run_setup("setup.py", stop_after="config")


def test_a_wheel_has_every_file(distribution: Any) -> None:
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    packed = {Path(folder, name) for _, folder, _, names in build.data_files for name in names}
    packed |= {Path(file) for _, _, file in build.find_all_modules()}
    files = {path for path in Path("qknorm").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert packed == files


@pytest.mark.usefixtures("distribution")
def test_a_source_distribution_is_small() -> None:
    """At most two megabytes: it leaves out the pictures and runs behind the results."""
    from distutils.filelist import FileList

    chosen = FileList()
    chosen.allfiles = [str(path) for path in Path().glob("[!.]*/**/*") if path.is_file()]
    for line in Path("MANIFEST.in").read_text().splitlines():
        if not line.startswith("#"):
            chosen.process_template_line(line)
    package = {str(path) for path in Path("qknorm").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    sizes = {file: len(zlib.compress(Path(file).read_bytes())) for file in {*chosen.files, *package}}
    assert sum(sizes.values()) < 2_000_000, sorted(sizes, key=sizes.__getitem__)[-9:]
    assert "docs/results.md" in sizes


def test_an_index_page_has_no_link_into_the_repository(distribution: Any) -> None:
    page = distribution.metadata.long_description
    assert page.startswith("# qknorm\n")
    assert not re.findall(r"\]\((?!https?://)|!\[", page)
