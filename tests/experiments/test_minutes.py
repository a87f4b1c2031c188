from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.experiments.cells import Cell
from qknorm.experiments.minutes import PLAN, by_one_plan
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import Recipe, checked, merged
from qknorm.screen import Screen
from qknorm.training import planned
from qknorm.training.planner import peak_for
from tests.phrases import write_phrases

QUIET = Screen(quiet=True)


def cells(text: Path, *changes: dict[str, object]) -> list[Cell]:
    """Runs that differ in these settings of training."""
    data = {"source": str(text / "train.en"), "target": str(text / "train.gl"), "languages": ["en", "gl"]}
    model = {"dim": 16, "feed_forward": 16, "encoder_layers": 1, "decoder_layers": 1, "heads": 2}
    return [
        Cell(str(number), {}, checked(Recipe, {"data": data, "model": model, "minutes": 1, "training": own}, ""))
        for number, own in enumerate(changes)
    ]


def recipes_of(cells: Iterable[Cell]) -> list[Recipe]:
    return [cell.recipe for cell in cells if isinstance(cell.recipe, Recipe)]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a machine that becomes slower with every look at it."""
    write_phrases(tmp_path, train=300, held_out=8)
    slower = itertools.count(1)
    monkeypatch.setattr(planned, "seconds_per_update", lambda *_: 0.01 * next(slower))
    return tmp_path


def test_all_runs_have_one_plan_and_so_have_those_of_a_later_call(text: Path) -> None:
    rates: list[dict[str, object]] = [{"peak": 0.001}, {"peak": 0.002}]
    first = by_one_plan(cells(text, *rates), text / "runs", QUIET, threads=1)
    later = by_one_plan(cells(text, *rates, {"peak": 0.003}), text / "runs", QUIET, threads=1)
    trainings = [recipe.training for recipe in recipes_of((*first, *later))]
    assert [training.peak for training in trainings] == [0.001, 0.002, 0.001, 0.002, 0.003]
    assert len({training.model_dump_json(exclude={"peak"}) for training in trainings}) == 1
    assert trainings[0].max_updates is not None
    assert {recipe.minutes for recipe in recipes_of((*first, *later))} == {None}
    assert (text / "runs" / PLAN).exists()


def test_what_one_run_asks_for_is_not_laid_under_another(text: Path) -> None:
    """A plan made for a baseline once made the quickstart train two baselines."""
    given = [
        replace(cell, recipe=checked(Recipe, merged(cell.recipe.model_dump(exclude_unset=True), {"model": model}), ""))
        for cell, model in zip(
            cells(text, {"peak": 0.5, "seed": 7}, {"seed": 7}),
            ({"qk_norm": "none", "norm": "scale", "fix_norm": False}, {"p": 3.0}),
            strict=True,
        )
    ]
    baseline, ours = recipes_of(by_one_plan(given, text / "runs", QUIET, threads=1))
    assert (baseline.model.qk_norm.kind, baseline.model.norm, baseline.model.fix_norm) == ("none", "scale", False)
    assert (ours.model.qk_norm, ours.model.norm, ours.model.fix_norm) == (LpRecipe(p=3.0), "layer", True)
    assert (baseline.training.peak, baseline.training.seed, ours.training.seed) == (0.5, 7, 7)
    assert ours.training.peak == peak_for(16)
    assert baseline.training.max_updates == ours.training.max_updates is not None
    assert baseline.model.dim == ours.model.dim == 16, "what all ask for is planned for"


def test_runs_of_other_minutes_are_not_compared_with_these(text: Path) -> None:
    """They had been given the kept plan, so that runs of ten hours were those of ten minutes."""
    (cell,) = cells(text, {})
    first = by_one_plan([cell], text / "runs", QUIET, threads=1)
    longer = replace(cell, recipe=cell.recipe.model_copy(update={"minutes": 600}))
    with pytest.raises(InputError, match=r"planned for 1 minutes each, not 600; choose another name=NAME"):
        by_one_plan([longer], text / "runs", QUIET, threads=1)
    kept = text / "runs" / PLAN
    earlier = kept.read_text().replace("minutes: 1.0", "minutes: null")
    assert earlier != kept.read_text()
    kept.write_text(earlier)
    assert by_one_plan([cell], text / "runs", QUIET, threads=1) == first, "an earlier version did not say them"


def test_a_run_may_have_a_schedule_or_a_length_of_its_own(text: Path) -> None:
    """The planned decay belonged to neither, and ended in a traceback after minutes of planning."""
    changes: list[dict[str, object]] = [{}, {"schedule": "cosine"}, {"max_updates": 2}]
    made = by_one_plan(cells(text, *changes), text / "runs", QUIET, threads=1)
    planned, cosine, short = (recipe.training for recipe in recipes_of(made))
    assert planned.decay is not None
    assert (cosine.decay, cosine.max_updates) == (None, planned.max_updates)
    assert (short.decay, short.max_updates) == (2, 2)


def test_what_does_not_fit_a_plan_is_one_sentence(text: Path) -> None:
    own: dict[str, object] = {"max_updates": 100_000, "max_validations": 1}
    with pytest.raises(InputError, match="would never be reached") as caught:
        by_one_plan(cells(text, {}, own), text / "runs", QUIET, threads=1)
    assert "\n" not in str(caught.value)


def test_runs_without_minutes_stay_as_they_are(text: Path) -> None:
    plain = [Cell("0", {}, checked(Recipe, {"data": {"corpus": "phrasebook-en-gl"}}, ""))]
    assert by_one_plan(plain, text / "runs", QUIET, threads=1) == plain
    assert not (text / "runs").exists()


def test_runs_of_several_texts_or_of_different_minutes_have_no_common_plan(
    text: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    write_phrases(other, train=300, held_out=8)
    (short,), (elsewhere,) = cells(text, {}), cells(other, {})
    longer = replace(short, recipe=short.recipe.model_copy(update={"minutes": 2.0}))
    for second, message in ((elsewhere, "for several texts at once"), (longer, "the same for all of them")):
        with pytest.raises(InputError, match=f"minutes .*{message}"):
            by_one_plan([short, second], text / "runs", QUIET, threads=1)
    assert not (text / "runs").exists()
