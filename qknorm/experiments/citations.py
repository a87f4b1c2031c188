"""The two papers: where they are found, and how they are cited."""

from __future__ import annotations

from pathlib import Path

from qknorm.runs.recipe import read_yaml
from qknorm.runs.recipe_part import RecipePart


class Paper(RecipePart):
    short: str
    """As a sentence has it."""
    title: str
    url: str
    bibtex: str


_FILE = Path(__file__).parent / "papers/papers.yaml"
PAPERS = {key: Paper.model_validate(paper) for key, paper in read_yaml(_FILE).items()}


def bibliography() -> str:
    """Both papers as BibTeX."""
    return "\n".join(paper.bibtex for paper in PAPERS.values())


def source(key: str | None) -> str:
    """The end of a page in Markdown about what a paper published; nothing where it names none."""
    paper = PAPERS.get(key or "")
    return f"**Source.** {paper.short}, [{paper.title}]({paper.url}), in references.bib." if paper else ""


def in_words(key: str | None) -> str:
    """The same for a page without links of its own."""
    paper = PAPERS.get(key or "")
    return f"{paper.short}, {paper.title}, {paper.url}" if paper else ""
