"""The page: a template, a style and a script become one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import qknorm
from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.report.charts import sample
from qknorm.experiments.report.collect import collect
from qknorm.experiments.report.sections import Report, report_on


def write_report(folder: Path, out: Path) -> None:
    """Make one HTML file of the runs in a folder; the same runs give the same file."""
    found = collect(folder)
    if out.is_dir():
        raise InputError(f"{out} is a folder; the report is a file, such as {out / 'report.html'}")
    with replacing(out) as file:  # opened first: a place that cannot be written to is found before the work
        # A file name need not be Unicode; what cannot be said in it becomes a question mark.
        file.write(render(report_on(found)).encode("utf-8", "replace"))


def render(report: Report) -> str:
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["sample"] = sample
    style, script = ((here / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return environment.get_template("page.html.jinja").render(
        report=report,
        version=qknorm.__version__,
        style=Markup(style),  # ours, not somebody's text
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'",
    )


def _digest(text: str) -> str:
    """By which the browser knows our own code: nothing else on the page may run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
