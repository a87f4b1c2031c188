"""The documentation site: built without a warning, whole, and from nobody else's host."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import qknorm

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """What a page loads, and where it can be referred to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value and tag != "a":
                self.loaded.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it: a link that leads nowhere is a warning, and a warning an error."""
    if not (ROOT / "website").exists():
        pytest.skip("the site is built in a checkout only")
    for package in ("material", "mkdocstrings"):
        pytest.importorskip(package, reason="the site needs the extra docs of pyproject.toml")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not [target for target in Page(page).loaded if re.match(r"[a-z]+:|//", target)], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    public = {
        f"{home}.{name}"
        for home, module in {"qknorm": qknorm, "qknorm.hf": qknorm.hf, "qknorm.testing": qknorm.testing}.items()
        for name in module.__all__
        if name != "__version__" and not inspect.ismodule(getattr(module, name))
    }
    assert public | {"qknorm.Translator", "qknorm.LanguageModel"} <= Page(site / "docs/api.html").anchors


def test_the_reference_of_commands_is_what_the_code_says() -> None:
    """After a change: `make reference`."""
    arguments = ["qknorm.cli", "utils", "docs", "--name", "qknorm", "--title", "Every command"]
    done = subprocess.run([sys.executable, "-m", "typer", *arguments], capture_output=True, text=True, check=True)
    assert (ROOT / "docs/commands.md").read_text(encoding="utf-8") == done.stdout
