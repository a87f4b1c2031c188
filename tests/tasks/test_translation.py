from __future__ import annotations

import json
from pathlib import Path

from qknorm.metrics.table import METRICS
from qknorm.runs.any_recipe import RECIPES
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS
from tests.tasks.test_table import DATA, recipe_of


def test_a_translator_with_minutes_takes_them_and_is_what_was_planned_for_it() -> None:
    described = TASKS["translation"]
    given = RECIPES["translation"].model_validate({"data": DATA["translation"], "minutes": 5})
    begun = recipe_of("translation", training={"peak": 0.001})
    assert described.planned_seconds(given) == 300
    assert described.planned_seconds(begun) is None
    assert described.is_same(begun, given)
    assert not described.is_same(begun, recipe_of("translation"))


def test_the_result_of_a_translator_is_the_mean_over_directions(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.save_recipe(recipe_of("translation", training={"metric": "ter"}))
    validations = [
        {"step": 8, "seconds": 1.5, "dev_bleu": 9.0, "dev_ter": 70.0},
        {"step": 16, "seconds": 3.0, "dev_bleu": 7.0, "dev_ter": 60.0},
    ]
    run.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in validations))
    for direction, bleu in (("en-gl", 10.0), ("gl-en", 30.0)):
        run.test_set(direction).folder.mkdir(parents=True)
        run.test_set(direction).save_scores({**dict.fromkeys(METRICS, 50.0), "bleu": bleu})
    described = TASKS["translation"]
    result = described.result(run)
    assert tuple(result) == described.measured
    assert (result["bleu"], result["chrf"]) == (20.0, 50.0)
    assert (result["best_dev_bleu"], result["updates"], result["seconds"]) == (9.0, 16, 3.0)
    assert result["best_dev_score"] == -60.0, "by the metric of the recipe; of TER less is better"
    assert described.told(result) == "test BLEU 20.00"
