"""A sweep: the answer in words, the figures and the tables."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from qknorm.experiments.citations import in_words
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Picture
from qknorm.experiments.report.collect import SweepRuns
from qknorm.experiments.report.contests import Material
from qknorm.experiments.report.section import Section
from qknorm.experiments.views.table import view_of

_ABOUT = "The same model was trained again and again, each time with other settings."


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
    pictures: dict[str, list[tuple[str, str]]]
    """Captions and data: addresses of those that belong together, by their heading."""
    tables: list[Table]

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
        shortest = answer.sentences if answer.verdict is None else answer.verdict
        verdict = [f"The answer: {sentence.removeprefix('So ')}" for sentence in shortest]
        source = in_words(said.paper)
        return cls(title, about, state, verdict, source, answer.sentences, pictures, answer.tables)


def _embedded(pictures: Sequence[Picture]) -> dict[str, list[tuple[str, str]]]:
    by_heading: dict[str, list[tuple[str, str]]] = {}
    for picture in pictures:
        content = base64.b64encode(picture.path.with_suffix(".svg").read_bytes()).decode()
        by_heading.setdefault(picture.heading, []).append((picture.caption, f"data:image/svg+xml;base64,{content}"))
    return by_heading
