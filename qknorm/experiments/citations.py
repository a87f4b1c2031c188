"""The two papers: where they are found, and how they are cited. CITATION.cff says the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    short: str
    """As a sentence has it."""
    title: str
    authors: tuple[str, ...]
    """Family name first, as BibTeX has them."""
    year: int
    url: str
    kind: str
    """Of the BibTeX entry."""
    fields: tuple[tuple[str, str], ...]
    """Further fields of it."""

    def bibtex(self, key: str) -> str:
        known = {"title": f"{{{self.title}}}", "author": " and ".join(self.authors), "year": str(self.year)}
        lines = {**known, **dict(self.fields), "url": self.url}
        return f"@{self.kind}{{{key},\n" + "".join(f"  {name} = {{{text}}},\n" for name, text in lines.items()) + "}\n"


PAPERS = {
    "henry-2020": Paper(
        short="Henry et al. 2020",
        title="Query-Key Normalization for Transformers",
        authors=("Henry, Alex", "Dachapally, Prudhvi Raj", "Pawar, Shubham Shantaram", "Chen, Yuxuan"),
        year=2020,
        url="https://aclanthology.org/2020.findings-emnlp.379",
        kind="inproceedings",
        fields=(
            ("booktitle", "Findings of the Association for Computational Linguistics: EMNLP 2020"),
            ("publisher", "Association for Computational Linguistics"),
            ("pages", "4246--4253"),
            ("doi", "10.18653/v1/2020.findings-emnlp.379"),
            ("eprint", "2010.04245"),
            ("archiveprefix", "arXiv"),
        ),
    ),
    "lopez-rubio-2026": Paper(
        short="López-Rubio et al. 2026",
        title="Enhanced QKNorm normalization for neural transformers with the Lp norm",
        authors=("López-Rubio, Ezequiel", "Montes-Pérez, Javier", "Palomo, Esteban José"),
        year=2026,
        url="https://arxiv.org/abs/2602.05006",
        kind="misc",
        fields=(("eprint", "2602.05006"), ("archiveprefix", "arXiv")),
    ),
}


def known_paper(key: str | None) -> str | None:
    """The key of a paper, which may be left out, if it is one of these."""
    if key is not None and key not in PAPERS:
        raise ValueError(f"paper must be one of {', '.join(PAPERS)}, not {key!r}")
    return key


def bibliography() -> str:
    """Both papers as BibTeX."""
    return "\n".join(paper.bibtex(key) for key, paper in PAPERS.items())


def source(key: str | None) -> str:
    """The end of a page in Markdown about what a paper published; nothing where it names none."""
    paper = PAPERS.get(key or "")
    return f"**Source.** {paper.short}, [{paper.title}]({paper.url}), in references.bib." if paper else ""


def in_words(key: str | None) -> str:
    """The same for a page without links of its own."""
    paper = PAPERS.get(key or "")
    return f"{paper.short}, {paper.title}, {paper.url}" if paper else ""
