from __future__ import annotations

from pathlib import Path

import yaml

from qknorm.experiments.citations import PAPERS, bibliography, source

ROOT = Path(__file__).parents[2]


def test_the_papers_are_cited_as_in_citation_cff() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    for paper, reference in zip(PAPERS.values(), cited, strict=True):
        authors = tuple(f"{author['family-names']}, {author['given-names']}" for author in reference["authors"])
        assert (paper.title, paper.authors, paper.year, paper.url) == (
            reference["title"], authors, reference["year"], reference["url"],
        )  # fmt: skip
    assert bibliography() in (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")


def test_a_page_names_its_source_and_leads_there() -> None:
    assert source("lopez-rubio-2026") == (
        "**Source.** López-Rubio et al. 2026, [Enhanced QKNorm normalization for neural transformers with the Lp "
        "norm](https://arxiv.org/abs/2602.05006), in references.bib."
    )
    assert source(None) == ""
