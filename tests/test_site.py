"""The documentation site: built without a warning, whole, and from nobody else's host."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

import qknorm

ROOT = Path(__file__).parents[1]


class Reference(NamedTuple):
    """An attribute of a tag that leads to a file or an anchor."""

    tag: str
    target: str

    @property
    def is_elsewhere(self) -> bool:
        return re.match(r"[a-z]+:|//", self.target) is not None


class Page(HTMLParser):
    """What a page refers to, and where it can be referred to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.anchors = {"", "__skip"}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.references.append(Reference(tag, unquote(value)))
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("material", "mkdocstrings"):
        pytest.importorskip(package, reason="the site needs the extra docs of pyproject.toml")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """All of them but the one for addresses that do not exist, which knows the site's own address alone."""
    return {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}


@pytest.mark.slow
def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 20
    for file, page in pages.items():
        for reference in page.references:
            if not reference.is_elsewhere:
                path, _, anchor = reference.target.partition("#")
                target = (file.parent / path).resolve() if path else file
                assert target.is_file() or (target / "index.html").is_file(), f"{file.name} links to {reference.target}"
                if target in pages:
                    assert anchor in pages[target].anchors, f"{file.name} links to {reference.target}"


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loaded = [each for page in pages.values() for each in page.references if each.tag != "a"]
    assert loaded
    assert not [each for each in loaded if each.is_elsewhere]
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path, pages: dict[Path, Page]) -> None:
    public = {
        f"{home}.{name}"
        for home, module in {"qknorm": qknorm, "qknorm.hf": qknorm.hf, "qknorm.testing": qknorm.testing}.items()
        for name in module.__all__
        if name != "__version__" and not inspect.ismodule(getattr(module, name))
    }
    assert public | {"qknorm.Translator", "qknorm.LanguageModel"} <= pages[site / "docs/api.html"].anchors


def test_the_reference_of_commands_is_what_the_code_says() -> None:
    """After a change: `make reference`."""
    arguments = ["qknorm.cli", "utils", "docs", "--name", "qknorm", "--title", "Every command"]
    done = subprocess.run([sys.executable, "-m", "typer", *arguments], capture_output=True, text=True, check=True)
    assert (ROOT / "docs/commands.md").read_text(encoding="utf-8") == done.stdout
