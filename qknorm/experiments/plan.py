"""From the rows × repeats of an experiment to its runs: what is trained, and in which order.

Rows that come to the same share a run. Rows may have several learning rates, of which each takes its own best.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qknorm.experiments.cells import Cell, Runner, check_missing
from qknorm.experiments.experiment import Experiment, PlannedRun
from qknorm.experiments.minutes import by_one_plan, by_plan, kept_plan
from qknorm.experiments.results import Entrant, contests_of, load_outcomes
from qknorm.runs.language_recipe import LanguageRecipe
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import AnyRecipe, Recipe
from qknorm.screen import Screen


@dataclass(frozen=True)
class Plan:
    """An experiment, and how to train every run of it."""

    experiment: Experiment
    cells: list[Cell]
    """Those of one seed and fold stand together: an unfinished experiment compares like with like."""
    full: Mapping[str, Recipe] = field(default_factory=dict)
    """Of a table the recipe of the full model on each corpus, for which minutes are planned."""

    def runs(self, folder: Path) -> list[Cell]:
        """All that are trained.

        Of rates, one is taken with further seeds; until it is known, the first stands for it.
        """
        entrants = self._entrants(folder)
        return self._cells(_trials(entrants), _chosen(entrants))

    def run(self, folder: Path, console: Screen, runner: Runner) -> dict[str, str]:
        """Train what is missing: first every rate with its first seed, then all seeds of the best; what failed, why.

        What can be refused is refused before minutes are planned.
        """
        missing = self.runs(folder)
        check_missing(missing, folder)
        planned = self._with_minutes_planned(folder, console, runner.threads(len(missing)))
        self.experiment.keep_plan(folder)
        failures = planned._run(_trials(self._entrants(folder)), folder, console, runner)
        settled = [entrant for entrant in self._entrants(folder) if entrant.is_settled]
        return failures | planned._run(_chosen(settled), folder, console, runner)

    def _run(self, runs: Iterable[str], folder: Path, console: Screen, runner: Runner) -> dict[str, str]:
        return runner.run_missing(self.experiment.name, self._cells(runs), folder, console)

    def _with_minutes_planned(self, folder: Path, console: Screen, threads: int) -> Plan:
        """The same with plain numbers for what minutes decide, the same for all runs that are compared."""
        if not self.full:
            return replace(self, cells=by_one_plan(self.cells, folder, console, threads))
        plans = {
            corpus: kept_plan(recipe, folder / corpus, console, threads)
            for corpus, recipe in self.full.items()
            if recipe.minutes is not None
        }
        planned = [by_plan(cell, plans[corpus]) if (corpus := cell.settings["corpus"]) in plans else cell
                   for cell in self.cells]  # fmt: skip
        return replace(self, cells=planned)

    def _entrants(self, folder: Path) -> list[Entrant]:
        contests = contests_of(self.experiment, load_outcomes(self.experiment, folder))
        return [entrant for contest in contests for entrant in contest.entrants]

    def _cells(self, *runs: Iterable[str]) -> list[Cell]:
        """Some of the runs, each once, in the order of the plan."""
        by_name = {cell.name: cell for cell in self.cells}
        wanted = [name for group in map(set, runs) for name in by_name if name in group]
        return [by_name[name] for name in dict.fromkeys(wanted)]


def _trials(entrants: Sequence[Entrant]) -> list[str]:
    """The runs by which rates are chosen."""
    return [tried.runs[0].name for entrant in entrants if len(entrant.tried) > 1 for tried in entrant.tried]


def _chosen(entrants: Sequence[Entrant]) -> list[str]:
    return [run.name for entrant in entrants for run in entrant.chosen.runs]


def sharing_runs(cells: Sequence[Cell]) -> list[Cell]:
    """Those that come to the same have one run, which has the name of the first."""
    first: dict[str, Cell] = {}
    shared = [first.setdefault(_what_it_does(cell.recipe), cell) for cell in cells]
    return [
        replace(cell, name=other.name, recipe=other.recipe.model_copy(update={"name": other.name}))
        for cell, other in zip(cells, shared, strict=True)
    ]


def _what_it_does(recipe: AnyRecipe) -> str:
    """Equal for runs that come to the same. What minutes will decide is not known yet, so defaults say nothing then."""
    done = recipe.model_dump(exclude={"name"}, exclude_unset=isinstance(recipe, Recipe) and recipe.minutes is not None)
    if isinstance(recipe, LanguageRecipe):
        norm = recipe.model.qk_norm
        if isinstance(norm, LpRecipe):
            done["model"]["qk_norm"]["start"] = norm.sharp_as
    return json.dumps(done)


def planned_runs(cells: Sequence[Cell]) -> tuple[PlannedRun, ...]:
    return tuple(PlannedRun(name=cell.name, settings=cell.settings, is_baseline=cell.is_baseline) for cell in cells)
