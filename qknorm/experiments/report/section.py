"""What a section of the report is. A new one is a file in `sections` with its data and text, its template beside it,
and its line in the table of that folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from qknorm.experiments.report.charts import Chart, Curve, Point, curve_chart
from qknorm.experiments.report.contests import Material
from qknorm.runs.contents import ValidationLine


class Section(ABC):
    """A part of the page. Its fields are what its template shows, sections/ANCHOR.html.jinja, as `section`."""

    title: str

    @classmethod
    @abstractmethod
    def of(cls, material: Material) -> Sequence[Self]:
        """The sections of this kind that the material gives: none, one, or several."""

    @property
    def anchor(self) -> str:
        """The name of its template, and its place on the page; page.py tells several of a kind apart."""
        return type(self).__name__.removesuffix("Section").lower()

    def first_sentences(self) -> list[str]:
        """What of it is to be said first, at the head of the page."""
        return []


@dataclass(frozen=True)
class Figure:
    title: str
    how_to_read: str
    chart: Chart


@dataclass(frozen=True)
class Group:
    """Figures that belong together: those of one system, or of one text."""

    name: str
    note: str
    figures: list[Figure]


def figures(title: str, how_to_read: str, curves: Sequence[Curve], y_name: str) -> list[Figure]:
    """A figure of curves over the updates, or none where there is nothing to draw."""
    chart = curve_chart(curves, "update", y_name, title)
    return [] if chart is None else [Figure(title, how_to_read, chart)]


def course(validations: Sequence[ValidationLine], value: Callable[[ValidationLine], float | None]) -> list[Point]:
    """A number over the updates, where it was measured."""
    return [(float(line.step), number) for line in validations if (number := value(line)) is not None]
