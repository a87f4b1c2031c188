"""What the recipe of a sweep says beside its runs: what they are to answer, and what they cannot."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from qknorm.experiments.citations import known_paper
from qknorm.runs.recipe_part import RecipePart

Shows = Literal["p", "rates", "scores"]
OF_LOSSES: frozenset[Shows] = frozenset({"p", "rates"})
"""What is made from curves of the loss, which only tasks that are cross-validated leave behind."""


class About(RecipePart):
    """The words on the page of a sweep, and what it shows."""

    title: str = ""
    question: str = ""
    shrunk: str = ""
    """What the size that was taken has less of."""
    caveat: str = ""
    shows: Shows | None = None
    """Without it, what the task is about: p, or the scores of translators."""
    paper: str | None = None
    """What the page cites, by its key in `citations.py`."""

    @field_validator("paper")
    @classmethod
    def _known(cls, paper: str | None) -> str | None:
        return known_paper(paper)
