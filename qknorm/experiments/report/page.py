"""The page: its sections, a style and a script become one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import qknorm
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.report import words
from qknorm.experiments.report.charts import sample
from qknorm.experiments.report.collect import Collection, collect
from qknorm.experiments.report.contests import material_of
from qknorm.experiments.report.section import Section
from qknorm.experiments.report.sections import kinds_of_sections

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class RenderedSection:
    """A section as HTML, and where on the page it is."""

    anchor: str
    title: str
    body: Markup


def write_report(folder: Path, out: Path) -> None:
    """Make one HTML file of the runs in a folder; the same runs give the same file."""
    collection = collect(folder)
    if out.is_dir():
        raise InputError(f"{out} is a folder; the report is a file, such as {out / 'report.html'}")
    with replacing(out) as file:  # opened first: a place that cannot be written to is found before the work
        # A file name need not be Unicode; what cannot be said in it becomes a question mark.
        file.write(render(collection).encode("utf-8", "replace"))


def render(collection: Collection) -> str:
    """The page about all that was found."""
    material = material_of(collection)
    sections = [section for kind in kinds_of_sections() for section in kind.of(material)]
    names = [system.name for system in material.systems]
    names += [run.name for run in collection.language_models] + [sweep.name for sweep in collection.sweeps]
    environment = _environment()
    style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return environment.get_template("page.html.jinja").render(
        folder=collection.name,
        title=words.heading(names, collection.name),
        sentences=[sentence for section in sections for sentence in section.first_sentences()],
        parts=list(_rendered(sections, environment)),
        version=qknorm.__version__,
        style=Markup(style),  # ours, not somebody's text
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'",
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["sample"] = sample
    return environment


def _rendered(sections: Sequence[Section], environment: Environment) -> Iterator[RenderedSection]:
    anchors = [section.anchor for section in sections]
    for place, section in enumerate(sections):
        number = anchors[:place].count(section.anchor) + 1
        anchor = section.anchor if anchors.count(section.anchor) == 1 else f"{section.anchor}-{number}"
        template = environment.get_template(f"sections/{section.anchor}.html.jinja")
        yield RenderedSection(anchor, section.title, Markup(template.render(section=section)))


def _digest(text: str) -> str:
    """By which the browser knows our own code: nothing else on the page may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
