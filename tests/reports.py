"""Runs for tests of the report: made from a trained one, without training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.runs.recipe import load_recipe, save_recipe

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
