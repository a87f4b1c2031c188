"""For tests of the report: runs that are made from a trained one without training, and a reader of pages."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.experiments.listed import plan_table
from qknorm.experiments.recipe import load_table
from qknorm.experiments.views.table import summarise
from qknorm.runs.recipe import Recipe, load_recipe, save_recipe
from qknorm.runs.run import Run
from tests.contents import translated

HOSTILE_NAME = "<img src=x onerror=document.title='run'>"
HOSTILE_LINE = "<b>one</b> & \"two\" </script><script>document.title='run'</script> three \u2028 four five six"
_LINES = 12


def two_systems(trained: Path, folder: Path) -> Path:
    """A folder with two runs that were tested on the same few lines; names and texts contain HTML.

    The second is the first with worse translations of the same model, and another budget of batches.
    """
    for name, budget in (("good", 1024), (HOSTILE_NAME, 512)):
        run = folder / name
        shutil.copytree(trained, run)
        recipe = load_recipe(run / "recipe.yaml")
        training = recipe.training.model_copy(update={"budget": budget})
        save_recipe(recipe.model_copy(update={"name": name, "training": training}), run / "recipe.yaml")
        for part in ("source", "references", "hypotheses"):
            lines = list(read_lines(run / "test" / f"{part}.txt"))[: _LINES - 1]
            if part == "hypotheses" and name != "good":
                lines = [line.rpartition(" ")[0] for line in lines]
            write_lines(run / "test" / f"{part}.txt", [HOSTILE_LINE, *lines])
        about = json.loads((run / "corpus.json").read_text())
        about["pairs"][0] |= {"dropped": {"duplicate": 1}, "longest_source": 200}  # long enough for the hostile line
        (run / "corpus.json").write_text(json.dumps(about))
        write_lines(
            run / "dropped.tsv", ["line\treason\tsource\ttarget", f"3\tduplicate\t{HOSTILE_LINE}\t{HOSTILE_LINE}"]
        )
    return folder


OWN_TABLE = """
title: Does every second word matter?
question: Is a translation without them worse?
caveat: Nothing was trained.
bleu: tokens
reference: whole
rows:
  - {name: shorter, changes: {training: {budget: 2048}}}
  - {name: whole, published: 30.5}
  - {name: alike, label: almost whole, changes: {training: {budget: 1024}}}
"""


def experiment(trained: Path, folder: Path, corpus: Path, rates: str = "[]") -> Path:
    """A folder as `qknorm reproduce` leaves it, with a table of three rows; returns its page."""
    (folder / "own.yaml").write_text(f"{OWN_TABLE}rates: {rates}\n")
    planned = plan_table(load_table(str(folder / "own.yaml")), "own.yaml", "smoke", str(corpus), 1)
    for cell in planned.runs(folder):
        run = folder / cell.name
        assert isinstance(cell.recipe, Recipe)
        shutil.copytree(trained, run)
        training = load_recipe(run / "recipe.yaml").training.model_copy(update={"budget": cell.recipe.training.budget})
        save_recipe(load_recipe(run / "recipe.yaml").model_copy(update={"training": training}), run / "recipe.yaml")
        lines = list(read_lines(run / "test" / "references.txt"))  # what the model says depends on the processor
        cut = {"shorter": len(lines), "alike": 1}.get(run.name.partition("_")[0], 0)
        shorter = [" ".join(line.split()[::2]) for line in lines[:cut]]
        write_lines(run / "test" / "hypotheses.txt", [*shorter, *lines[cut:]])
        Run(run).save_result(translated(1.0))
    summarise(planned.experiment, folder)
    return planned.experiment.page(folder)


class Page(HTMLParser):
    """What a browser would make of a page: its tags, its visible text, and the text of its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = self.data = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = str(dict(attrs).get("type", tag)) if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag in ("script", "style") else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside == "application/json":
            self.data += data
        elif not self._inside:
            self.text += data
