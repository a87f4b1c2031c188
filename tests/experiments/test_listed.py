from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from qknorm.errors import InputError
from qknorm.experiments.cells import Cell
from qknorm.experiments.machines import Machines
from qknorm.experiments.recipe import PAIRS, Size, names
from qknorm.experiments.slurm import Slurm
from qknorm.experiments.views.table import summarise
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import Recipe, load_recipe
from qknorm.runs.run import Run
from qknorm.screen import Screen
from qknorm.training import planned as plans_by_time
from qknorm.training import speed
from tests.contents import translated
from tests.experiments.plans import contest_of, planned, run_of


@pytest.mark.parametrize("size", get_args(Size))
@pytest.mark.parametrize("name", names())
def test_every_table_has_possible_recipes_in_every_size(name: str, size: Size, tmp_path: Path) -> None:
    plan = planned(name, size, "multi30k-en-de", 2)
    assert plan.experiment.table is not None
    rows = [entrant.name for entrant in contest_of(plan, tmp_path).entrants]
    assert rows == [row.name for row in plan.experiment.table.rows_at(size)]
    runs = plan.runs(tmp_path)
    recipes = [cell.recipe.model_dump_json() for cell in runs]
    assert len(set(recipes)) == len(recipes) == len({cell.name for cell in runs})


def test_systems_that_come_to_the_same_are_run_once(tmp_path: Path) -> None:
    """The full model of the small size has four heads; at the paper's it has eight."""
    for size, heads in (("small", "heads-4"), ("paper", "heads-8")):
        plan = planned("henry-table4", size, "multi30k-en-de")  # type: ignore[arg-type]
        assert run_of(plan, heads).name == "multi30k-en-de/qknorm_seed-1"
        assert len(plan.runs(tmp_path)) == 5


def test_a_row_that_names_a_default_differs_from_one_that_leaves_it_to_the_plan() -> None:
    """At medium the plan decides how many heads the full model has, so eight of them are a row of their own."""
    plan = planned("henry-table4", "medium", "multi30k-en-de")
    assert {run_of(plan, f"heads-{heads}").recipe.model_dump()["model"]["heads"] for heads in (4, 8)} == {4, 8}
    assert run_of(plan, "heads-8").name == "multi30k-en-de/heads-8_rate-0.00075_seed-1"
    plan = planned("future-work", "medium", "multi30k-en-de")
    assert run_of(plan, "qknorm").name != run_of(plan, "heads-8").name


@pytest.mark.parametrize("size", get_args(Size))
def test_tables_about_the_same_system_share_its_run(size: Size) -> None:
    """Also at medium, where a run is named by its learning rate: a table that left it to the plan would train again."""
    tables = [planned(name, size, "multi30k-en-de") for name in ("head-dimension", "future-work", "henry-table6")]
    assert len({run_of(plan, "qknorm").name for plan in tables}) == 1
    heads = 8 if size != "smoke" else 32
    tables = [planned(name, size, "multi30k-en-de") for name in ("head-dimension", "henry-table4")]
    assert len({run_of(plan, f"heads-{heads}").name for plan in tables}) == 1


def test_only_the_run_that_is_in_the_way_is_named(talks: str, tmp_path: Path) -> None:
    plan = planned("henry-table2", "smoke", talks)
    cell = run_of(plan, "baseline")
    in_the_way = Run(tmp_path / cell.name)
    in_the_way.folder.mkdir(parents=True)
    in_the_way.save_recipe(run_of(plan, "qknorm").recipe)
    with pytest.raises(InputError) as refused:
        plan.run(tmp_path, Screen(quiet=True), Machines())
    told = f"{in_the_way.folder} was made by another recipe; give the row another name, or delete {in_the_way.folder}"
    assert str(refused.value) == told


class TestLearningRates:
    """Equal care: every row at the rate that is best for it on dev."""

    @pytest.fixture
    def trained(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
        """Runs are not trained but given a dev BLEU, by row and rate; those that have none here fail."""
        scores = {"qknorm_rate-0.002": 3.0, "qknorm_rate-0.004": 2.0, "p3_rate-0.002": 1.0, "p3_rate-0.004": 4.0}

        def run_missing(_: Machines, __: str, cells: Sequence[Cell], folder: Path, ___: Screen) -> dict[str, str]:
            for cell in cells:
                bleu = scores.get(Path(cell.name).name.rpartition("_seed")[0])
                (folder / cell.name).mkdir(parents=True, exist_ok=True)
                if bleu is not None:
                    Run(folder / cell.name).save_result(translated(bleu, seconds=36.0))
                else:
                    Run(folder / cell.name).save_failure("diverged")
            return {cell.name: "diverged" for cell in cells if not Run(folder / cell.name).is_done}

        monkeypatch.setattr(Machines, "run_missing", run_missing)
        return scores

    def runs(self, folder: Path) -> set[str]:
        return {path.parent.name for path in folder.glob("*/*/result.json")}

    def test_the_best_on_dev_is_taken_with_further_seeds(
        self, own: str, talks: str, tmp_path: Path, trained: dict[str, float]
    ) -> None:
        plan = planned(own, "smoke", talks, seeds=2)
        assert plan.run(tmp_path, Screen(quiet=True), Machines()) == {}
        peaks = {Path(cell.name).name: cell.recipe.model_dump()["training"]["peak"] for cell in plan.cells}
        assert {name: f"{peak:g}" for name, peak in peaks.items()} == {
            name: name.partition("_rate-")[2].partition("_")[0] for name in peaks
        }
        tried = {f"{name}_seed-1" for name in trained}
        assert self.runs(tmp_path) == tried | {"qknorm_rate-0.002_seed-2", "p3_rate-0.004_seed-2"}
        chosen = [entrant.chosen.rate for entrant in contest_of(plan, tmp_path).entrants]
        assert chosen == [0.002, 0.004]
        assert {Path(cell.name).name for cell in plan.runs(tmp_path)} == self.runs(tmp_path), "nothing is left to train"

    def test_a_rate_that_fails_is_not_chosen_and_where_every_rate_fails_no_further_seed_is_trained(
        self, own: str, talks: str, tmp_path: Path, trained: dict[str, float]
    ) -> None:
        plan = planned(own, "smoke", talks, seeds=2)
        del trained["p3_rate-0.004"]
        assert list(plan.run(tmp_path / "one", Screen(quiet=True), Machines())) == ["talks/p3_rate-0.004_seed-1"]
        assert contest_of(plan, tmp_path / "one").entrants[1].chosen.rate == 0.002
        del trained["p3_rate-0.002"]
        assert len(plan.run(tmp_path / "all", Screen(quiet=True), Machines())) == 2
        assert not contest_of(plan, tmp_path / "all").entrants[1].is_settled

    def test_while_a_rate_is_queued_no_further_seed_is(self, own: str, talks: str, tmp_path: Path) -> None:
        """With SLURM some rates are done before others; whichever ends first has not won."""

        def queued() -> set[str]:
            slurm = Slurm()
            planned(own, "smoke", talks, seeds=2).run(tmp_path, Screen(quiet=True), slurm)
            return {Path(name).name for name in slurm.cells}

        def folder(row: str, rate: float) -> Run:
            run = Run(tmp_path / "talks" / f"{row}_rate-{rate}_seed-1")
            run.folder.mkdir(parents=True)
            return run

        folder("qknorm", 0.002).save_result(translated(1.0))
        folder("p3", 0.002).save_result(translated(1.0))
        assert queued() == {"qknorm_rate-0.004_seed-1", "p3_rate-0.004_seed-1"}
        folder("qknorm", 0.004).save_result(translated(2.0))
        folder("p3", 0.004).save_failure("diverged")
        assert queued() == {"qknorm_rate-0.004_seed-2", "p3_rate-0.002_seed-2", "p3_rate-0.004_seed-1"}


def test_a_copy_of_a_table_of_the_package_has_pages_of_its_own(talks: str, tmp_path: Path) -> None:
    """Somebody changes a copy of the built-in table: its page stood in the place of the built-in one's."""
    copy = tmp_path / "henry-table2.yaml"
    copy.write_text("{title: Mine, rows: [{like: baseline}, {like: qknorm}]}")
    assert planned(str(copy), "smoke", talks).experiment.name == "henry-table2-own"
    assert planned("henry-table2", "smoke", talks).experiment.name == "henry-table2"


class TestMinutes:
    """A size that is given in minutes has one plan for all runs on a corpus, whoever runs them and when."""

    @pytest.fixture
    def trained(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Recipe]:
        """Recipes as they would be trained, by the names of their runs."""
        recipes: dict[str, Recipe] = {}

        def run_missing(_: Machines, __: str, cells: Sequence[Cell], ___: Path, ____: Screen) -> dict[str, str]:
            recipes.update({cell.name: cell.recipe for cell in cells if isinstance(cell.recipe, Recipe)})
            return {}

        monkeypatch.setattr(Machines, "run_missing", run_missing)
        monkeypatch.setattr(speed, "_SECONDS_MEASURED", 0.05)
        return recipes

    def test_all_runs_have_the_same_plan_and_a_second_call_too(
        self, own: str, talks: str, tmp_path: Path, trained: dict[str, Recipe], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned(own, "medium", talks).run(tmp_path / "out", Screen(quiet=True), Machines())
        first = dict(trained)
        assert set(first) == {f"talks/{row}_rate-{rate}_seed-1" for row in ("qknorm", "p3") for rate in (0.002, 0.004)}
        assert {recipe.minutes for recipe in first.values()} == {None}
        for name, recipe in first.items():
            rate, p = (0.002 if "0.002" in name else 0.004), (3.0 if "p3" in name else 2.0)
            assert (recipe.training.peak, recipe.model.qk_norm) == (rate, LpRecipe(p=p))
        alike = [
            recipe.model_dump(exclude={"name": True, "training": {"peak"}, "model": {"qk_norm"}})
            for recipe in first.values()
        ]
        assert all(recipe == alike[0] for recipe in alike)

        def slower(*_: object) -> float:
            return 100.0

        monkeypatch.setattr(plans_by_time, "seconds_per_update", slower)
        planned(own, "medium", talks).run(tmp_path / "out", Screen(quiet=True), Machines())
        assert trained == first, "another day, a slower machine: the plan that was kept is taken"

    def test_other_minutes_have_another_folder_and_another_plan(self, talks: str) -> None:
        folders, asked = {}, {}
        for minutes in (30, 12, 0.5):
            plan = planned("henry-table2", "medium", talks, minutes=minutes)
            folders[minutes], asked[minutes] = plan.experiment.folder(Path("runs")).name, plan.full["talks"].minutes
        assert folders == {30: "reproduce-medium", 12: "reproduce-medium-12", 0.5: "reproduce-medium-0.5"}
        assert asked == {30: 30, 12: 12, 0.5: 0.5}

    def test_a_page_says_how_long_runs_were_and_what_was_planned(
        self, own: str, talks: str, tmp_path: Path, trained: dict[str, Recipe]
    ) -> None:
        plan = planned(own, "medium", talks, minutes=0.5)
        plan.run(tmp_path, Screen(quiet=True), Machines())
        recipe = next(iter(trained.values()))
        summarise(plan.experiment, tmp_path)
        page = plan.experiment.page(tmp_path).read_text()
        assert "MEDIUM SIZE: 0.5 minutes a run" in page
        updates = f"{recipe.training.max_updates:,} updates of {recipe.training.budget:,} positions."
        assert f"d = {recipe.model.dim}, {updates}" in page


def test_the_paper_s_size_is_that_of_the_recipes() -> None:
    plan = planned("henry-table2", "paper", None)
    assert plan.experiment.corpora == list(PAIRS.values())
    for system, name in (("qknorm", "gl-en"), ("baseline", "gl-en-baseline")):
        ours = run_of(plan, system, list(PAIRS).index("gl-en")).recipe.model_dump(exclude={"name"})
        theirs = load_recipe(Path(f"recipes/{name}.yaml")).model_dump(exclude={"name"})
        if system == "baseline":
            theirs["training"]["warmup"] = ours["training"]["warmup"]  # unused: the schedule is constant
        assert ours == theirs
