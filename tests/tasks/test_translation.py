from __future__ import annotations

from pathlib import Path

from qknorm.metrics.table import METRICS
from qknorm.runs.any_recipe import RECIPES
from qknorm.runs.contents import Scores
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS
from tests.contents import validation, write_metrics
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
    write_metrics(
        tmp_path,
        validation(8, 1.5, measures={"dev_bleu": 9.0, "dev_ter": 70.0}),
        validation(16, 3.0, measures={"dev_bleu": 7.0, "dev_ter": 60.0}),
    )
    for direction, bleu in (("en-gl", 10.0), ("gl-en", 30.0)):
        run.test_set(direction).folder.mkdir(parents=True)
        scores = Scores(measures={**dict.fromkeys(METRICS, 50.0), "bleu": bleu}, lines=3, signature="")
        scores.write(run.test_set(direction).scores_file)
    described = TASKS["translation"]
    result = described.result(run)
    assert result.content().keys() == set(described.measured)
    assert (result.measures["bleu"], result.measures["chrf"]) == (20.0, 50.0)
    assert (result.best_dev_bleu, result.updates, result.seconds) == (9.0, 16, 3.0)
    assert result.best_dev_score == -60.0, "by the metric of the recipe; of TER less is better"
    assert described.told(result) == "test BLEU 20.00"
