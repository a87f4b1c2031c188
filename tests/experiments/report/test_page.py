"""The page as a whole: no text of others can become code, and nothing is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path

from qknorm.experiments.report import write_report
from tests.reports import HOSTILE_LINE, HOSTILE_NAME, Page


def test_the_page_loads_nothing_and_is_small(html: str) -> None:
    page = Page(html)
    addresses = [value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "href")]
    assert addresses
    assert all(str(address).startswith(("#", "data:")) for address in addresses)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert "url(" not in html
    assert "@import" not in html
    policy = next(str(attributes["content"]) for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")
    assert len(html) < 3e6


def test_html_in_names_and_texts_is_shown_as_it_is(html: str) -> None:
    page = Page(html)
    assert HOSTILE_NAME in page.text
    assert HOSTILE_LINE in page.text
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 2  # the viewer and its data
    assert "img" not in tags
    systems = json.loads(page.data)
    assert [system["name"] for system in systems] == [HOSTILE_NAME, "good"]
    assert HOSTILE_LINE in [sentence["text"] for sentence in systems[0]["sentences"]]


def test_everything_about_two_systems_is_there(html: str) -> None:
    text = Page(html).text
    for heading in ("Scores", "Learning", "Examples", "Attention", "Sharpness g", "Corpus", "Settings"):
        assert f"\n{heading}\n" in text.replace("  ", "")
    assert f"to {HOSTILE_NAME}, which the others are compared with" in text
    assert "good does better" in text
    assert text.count("Score while learning") == 1, "of the same text, systems share their figures"
    assert re.findall(r"<th scope=.row.>([\w.]+)</th><td>512</td><td>1024</td>", html) == ["training.budget"]
    assert f"Report: {HOSTILE_NAME} and good" in text
    assert "Two translators (" in text
    assert "queries and keys normalised, p = 2" in text
    assert "the same pair stands earlier in the text" in text


def test_the_same_runs_give_the_same_file(both: Path, html: str, tmp_path: Path) -> None:
    write_report(both, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == html
