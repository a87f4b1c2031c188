from __future__ import annotations

from pathlib import Path

from qknorm.experiments.papers.table import PAIRS
from qknorm.runs.recipe import load_recipe
from tests.experiments.papers.plans import planned, run_of

RECIPES = Path(__file__).parents[3] / "recipes"


def test_the_paper_s_size_is_that_of_the_recipes() -> None:
    plan = planned("henry-table2", "paper", None)
    pairs = [contest.pair for contest in plan.experiment.contests]
    assert pairs == list(PAIRS)
    for system, name in (("qknorm", "gl-en"), ("baseline", "gl-en-baseline")):
        ours = run_of(plan, system, pairs.index("gl-en")).recipe.model_dump(exclude={"name"})
        theirs = load_recipe(RECIPES / f"{name}.yaml").model_dump(exclude={"name"})
        if system == "baseline":
            theirs["training"]["warmup"] = ours["training"]["warmup"]  # unused: the schedule is constant
        assert ours == theirs
