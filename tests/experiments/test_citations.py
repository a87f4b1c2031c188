from __future__ import annotations

from pathlib import Path

import yaml

from qknorm.experiments.citations import PAPERS, bibliography, source

ROOT = Path(__file__).parents[2]


def test_the_papers_are_cited_as_in_citation_cff() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    for paper, reference in zip(PAPERS.values(), cited, strict=True):
        assert (paper.title, paper.url) == (reference["title"], reference["url"])
        authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in reference["authors"])
        said = {"title": f"{{{paper.title}}}", "author": authors, "year": reference["year"], "url": paper.url}
        assert [key for key, text in said.items() if f"  {key} = {{{text}}},\n" not in paper.bibtex] == []
    assert bibliography() in (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")


def test_a_page_names_its_source_and_leads_there() -> None:
    assert source("lopez-rubio-2026") == (
        "**Source.** López-Rubio et al. 2026, [Enhanced QKNorm normalization for neural transformers with the Lp "
        "norm](https://arxiv.org/abs/2602.05006), in references.bib."
    )
    assert source(None) == ""
