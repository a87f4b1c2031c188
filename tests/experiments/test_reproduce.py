from __future__ import annotations

import json
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.cells import run_missing
from qknorm.experiments.papers import reproduce
from qknorm.experiments.papers.henry import EXPERIMENTS, PAIRS, TABLE_1, Size
from qknorm.runs.recipe import load_recipe
from qknorm.screen import Screen
from tests.caches import new_cache
from tests.phrases import write_phrases

RECIPES = Path(__file__).parents[2] / "recipes"


def test_the_paper_s_size_is_that_of_the_recipes() -> None:
    planned = reproduce.plan("henry-table2", "paper", None, 1)
    assert [corpus.pair for corpus in planned.corpora] == list(PAIRS)
    for system, name in (("qknorm", "gl-en"), ("baseline", "gl-en-baseline")):
        ours = planned.cells["ted-gl-en", system, 1].recipe.model_dump(exclude={"name"})
        theirs = load_recipe(RECIPES / f"{name}.yaml").model_dump(exclude={"name"})
        if system == "baseline":
            theirs["training"]["warmup"] = ours["training"]["warmup"]  # unused: the schedule is constant
        assert ours == theirs


def test_the_published_gain_is_0_928_on_average() -> None:
    """As the paper says in its text: a check of what was copied from its tables."""
    published = EXPERIMENTS["henry-table2"].published
    gains = [published[pair, "qknorm"] - published[pair, "baseline"] for pair in PAIRS]
    assert sum(gains) / len(gains) == pytest.approx(0.928, abs=5e-4)
    assert set(TABLE_1) == set(PAIRS)


@pytest.mark.parametrize("size", ["smoke", "small", "medium", "paper"])
def test_every_experiment_has_possible_recipes_in_every_size(size: Size) -> None:
    for name, experiment in EXPERIMENTS.items():
        planned = reproduce.plan(name, size, "multi30k-en-de", 2)
        assert {system for _, system, _ in planned.cells} == {system.name for system in experiment.systems(size)}
        recipes = [cell.recipe.model_dump_json() for cell in planned.runs]
        assert len(set(recipes)) == len(recipes) == len({cell.name for cell in planned.runs})
        assert experiment.reference in {system for _, system, _ in planned.cells}
        assert all(system in {one.name for one in planned.systems} for _, system in experiment.published)


def test_systems_that_come_to_the_same_are_run_once() -> None:
    """The full model of the small size has four heads; at the paper's it has eight."""
    for size, heads in (("small", "heads-4"), ("paper", "heads-8")):
        planned = reproduce.plan("henry-table4", size, "multi30k-en-de", 1)  # type: ignore[arg-type]
        assert planned.cells["multi30k-en-de", heads, 1].name == "multi30k-en-de/qknorm_seed-1"
        assert len(planned.runs) == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "neither a parallel corpus"),
        ("tinyshakespeare", "neither a parallel corpus"),
        (".", "needs one train file in each of two languages"),
    ],
)
def test_what_is_no_corpus(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        reproduce.plan("henry-table2", "smoke", name, 1)


def test_a_folder_says_by_its_name_which_language_is_the_source(tmp_path: Path) -> None:
    for name, languages in (("talks-gl-en", ["gl", "en"]), ("talks", ["en", "gl"])):
        (tmp_path / name).mkdir()
        write_phrases(tmp_path / name, train=4, held_out=2)
        assert reproduce.find_corpus(str(tmp_path / name)).data["languages"] == languages
    (tmp_path / "talks" / "dev.gl").unlink()
    with pytest.raises(InputError, match=r"has no dev\.gl"):
        reproduce.find_corpus(str(tmp_path / "talks"))


def test_a_table_with_what_is_done_and_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    (tmp_path / "talks").mkdir()
    write_phrases(tmp_path / "talks", train=200, held_out=16)
    folder = tmp_path / "runs"

    def rows(seeds: int) -> list[reproduce.Row]:
        planned = reproduce.plan("henry-table6", "smoke", str(tmp_path / "talks"), seeds)
        written = reproduce.write(planned, reproduce.table(planned, folder), folder)
        assert written.read_text().count("not run") == len(
            [row for row in reproduce.rows(planned, folder) if not row.seeds]
        )
        assert json.loads(written.with_suffix(".json").read_text())["rows"][1]["paper"] == 24.53
        return reproduce.rows(planned, folder)

    def run(*systems: str, seed: int) -> None:
        planned = reproduce.plan("henry-table6", "smoke", str(tmp_path / "talks"), seed)
        cells = [planned.cells["talks", system, seed] for system in systems]
        assert run_missing("test", cells, folder, Screen(quiet=True), jobs=1) == {}

    assert {row.ours for row in rows(1)} == {None}
    run("without-g", seed=1)
    alone = rows(1)[1]
    assert (alone.seeds, alone.difference, alone.p_value) == (1, None, None)
    run("qknorm", seed=1)
    full, without_g, *others = rows(1)
    assert without_g.ours == alone.ours
    assert full.ours is not None
    assert without_g.ours is not None
    assert without_g.difference == pytest.approx(without_g.ours - full.ours)
    assert without_g.p_value is not None
    assert (full.paper, without_g.paper_difference, without_g.ours_minus_paper) == (33.24, -8.71, None)
    assert {row.ours for row in others} == {None}
    run("qknorm", seed=2)
    assert [row.seeds for row in rows(2)[:2]] == [1, 1], "as many of each"
    run("without-g", seed=2)
    full, *_ = rows(2)
    assert full.seeds == 2
    assert full.ours_sd is not None
