"""A sweep: the answer in words, the figures and the tables."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from qknorm.experiments.citations import in_words
from qknorm.experiments.page import Picture, Table
from qknorm.experiments.report.collect import SweepRuns
from qknorm.experiments.report.material import Material
from qknorm.experiments.report.section import Section
from qknorm.experiments.views.table import view_of

_ABOUT = "The same model was trained again and again, each time with other settings."


@dataclass(frozen=True)
class Embedded:
    caption: str
    data: str
    """A data: address."""


@dataclass(frozen=True)
class SweepSection(Section):
    """The statistics and figures of the runs as they are now, so that those of a sweep under way agree."""

    title: str
    about: str
    state: str
    verdict: list[str]
    source: str
    """The paper whose claim it looks at, if there is one."""
    sentences: list[str]
    pictures: list[tuple[str, list[Embedded]]]
    """Those that belong together, by their heading."""
    tables: list[Table]
    template = """
<p>{{ section.about }} {{ section.state }}</p>
{% if section.source %}<p><b>Source.</b> {{ section.source }}</p>{% endif %}
{{ listed(section.sentences, "answer") }}
{% for start, pictures in section.pictures %}
<h3>{{ start }}</h3>
<div class="pictures">
{% for picture in pictures %}
<figure class="card">
  <figcaption><p class="how">{{ picture.caption }}</p></figcaption>
  {% call scrolling("Figure: " ~ picture.caption) %}
  <img class="picture" src="{{ picture.data }}" alt="{{ picture.caption }}">
  {% endcall %}
</figure>
{% endfor %}
</div>
{% endfor %}
{% for table in section.tables if table.rows %}
{% if table.title %}<h3>{{ table.title }}</h3>{% endif %}
{% if table.note %}<p class="how">{{ table.note }}</p>{% endif %}
{% call scrolling(table.note) %}
<table>
  {{ head(table.columns) }}
  <tbody>
    {% for row in table.rows %}
    <tr><th scope="row">{{ row[0] }}</th>{% for cell in row[1:] %}<td>{{ cell }}</td>{% endfor %}</tr>
    {% endfor %}
  </tbody>
</table>
{% endcall %}
{% endfor %}
"""

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        return [cls._of(sweep) for sweep in material.collection.sweeps]

    def first_sentences(self) -> list[str]:
        return [f"{self.title}: {' '.join([self.state, *self.verdict])}"]

    @classmethod
    def _of(cls, sweep: SweepRuns) -> Self:
        title = f"Sweep {sweep.name}"
        runs = {result.folder: result.status for result in sweep.results}  # some choices share one
        done = [status for status in runs.values() if status == "done"]
        answer = view_of(sweep.experiment).answer(sweep.experiment, sweep.results)
        with tempfile.TemporaryDirectory() as scratch:
            pictures = _embedded(answer.draw(Path(scratch)))
        said = sweep.experiment.about
        about = " ".join(filter(None, [said.question or _ABOUT, said.shrunk, said.caveat]))
        state = f"{len(done):,} of {len(runs):,} runs are done."
        verdict = [f"The answer: {sentence.removeprefix('So ')}" for sentence in answer.verdict]
        source = in_words(said.paper)
        return cls(title, about, state, verdict, source, answer.sentences, pictures, answer.tables)


def _embedded(pictures: Sequence[Picture]) -> list[tuple[str, list[Embedded]]]:
    by_heading: dict[str, list[Embedded]] = {}
    for picture in pictures:
        content = base64.b64encode(picture.path.with_suffix(".svg").read_bytes()).decode()
        embedded = Embedded(picture.caption, f"data:image/svg+xml;base64,{content}")
        by_heading.setdefault(picture.heading, []).append(embedded)
    return list(by_heading.items())
