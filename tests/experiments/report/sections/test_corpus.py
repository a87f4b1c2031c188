from __future__ import annotations

import json
import shutil
from pathlib import Path

from qknorm.experiments.report import write_report
from qknorm.runs.recipe import DataRecipe, DirectionRecipe, load_recipe, save_recipe
from tests.reports import Page


def test_several_language_pairs_have_a_table_each(bare_run: Path, trained_run: Path, tmp_path: Path) -> None:
    recipe = load_recipe(bare_run / "recipe.yaml")
    directions = tuple(
        DirectionRecipe(source="x", target="y", languages=languages) for languages in (("a", "b"), ("b", "a"))
    )
    data = DataRecipe(pairs=directions, merges=recipe.data.merges)
    save_recipe(recipe.model_copy(update={"data": data}), bare_run / "recipe.yaml")
    about = json.loads((bare_run / "corpus.json").read_text())
    about["pairs"] = [{"read": 9, "kept": 7, "dropped": {"duplicate": 2}}] * 2
    (bare_run / "corpus.json").write_text(json.dumps(about))
    for code in ("a-b", "b-a"):
        shutil.copytree(trained_run / "test", bare_run / "test" / code)
        (bare_run / f"dropped-{code}.tsv").write_text(f"line\treason\tsource\ttarget\n1\tduplicate\tfrom {code}\tx\n")
    write_report(bare_run, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    for phrase in ("a → b, 100 sentences", "b → a, 100 sentences", "from a-b", "from b-a", "Not shown: bare: "):
        assert phrase in text
