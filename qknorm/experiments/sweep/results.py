"""What the runs of a sweep left on disk, as one table."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qknorm.errors import InputError
from qknorm.experiments.cells import REPEATS, is_done
from qknorm.experiments.formats import as_csv, write_texts
from qknorm.experiments.sweep.about import About
from qknorm.runs.contents import LayerAttention
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS

PLAN = "sweep.json"
"""The file in the folder of a sweep that says which runs it has."""
PLAIN = "none"  # the `start` of runs without Lp normalisation
STARTS = ("same", "comparable")
_OF_SYSTEM = ("qk_norm", "p", "start")
Repeat = tuple[tuple[str, Any], ...]
"""Which fold and seed, as far as they vary: keys and values, the fold first."""
_NORMS = {"none": "no normalisation", "rms": "RMSNorm", "layer": "LayerNorm"}


@dataclass(frozen=True)
class RunResult:
    """One run: what distinguishes it, what came out, and its course (of a language model).

    Lists have an entry per validation.
    """

    folder: Path
    task: str
    settings: dict[str, Any]
    status: str
    measured: dict[str, float] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    alphas: list[list[float]] = field(default_factory=list)
    """Per layer, the mean over its heads; empty without normalisation."""
    alpha_start: float | None = None
    entropy: list[float] = field(default_factory=list)
    """Mean over layers and heads, as the two below."""
    saturated: list[float] = field(default_factory=list)
    use_of_bound: list[float] = field(default_factory=list)
    """The largest logit as a share of its bound; empty without normalisation."""
    largest_logits: list[float] = field(default_factory=list)
    """In absolute value, of all layers and heads."""
    untrained_loss: float | None = None
    """That of a model which has learned nothing; None where the run has not begun."""
    is_baseline: bool = False
    """Whether it stands beside the grid, and not in it."""
    further: tuple[str, ...] = ()
    """Keys in which a baseline differs from the whole grid, beside its normalisation: they are part of its name."""

    @property
    def p(self) -> float | None:
        """None for a run without Lp normalisation."""
        value = self.settings.get("p")
        return None if value is None else float(value)

    @property
    def start(self) -> str:
        if self.settings.get("qk_norm", "lp") != "lp":
            return PLAIN
        return str(self.settings.get("start", "same"))

    @property
    def is_beside(self) -> bool:
        """Whether it stands beside the values of p, whatever their start: another norm, start or further key."""
        return self.start not in STARTS or bool(self.further)

    @property
    def sharp_as(self) -> float | None:
        """The p as sharp as which it starts, where its recipe says so in place of `same` or `comparable`."""
        return None if self.start in (PLAIN, *STARTS) else float(self.start)

    @property
    def label(self) -> str:
        return self.named()

    def named(self, leave_out: str = "") -> str:
        """The kind of normalisation in words, and what else only this baseline has."""
        if self.start == PLAIN:
            norm = _NORMS.get(self.settings["qk_norm"], self.settings["qk_norm"])
        else:
            norm = "Lp norm" if self.p is None else f"p = {self.p:g}"
        sharp = [] if self.sharp_as is None else [f"as sharp as p = {self.sharp_as:g}"]
        own = [key for key in self.further if key != leave_out]
        if own and self.start == "comparable":
            own.insert(0, "start")
        return ", ".join([norm, *sharp, *(f"{key} {self.settings[key]}" for key in own)])

    @property
    def repeat(self) -> Repeat:
        """What two runs must share to be compared: the fold and the seed."""
        return tuple((key, self.settings[key]) for key in reversed(REPEATS) if key in self.settings)

    @property
    def block(self) -> Repeat:
        """What counts as one observation: the fold with all its seeds, or the seed where there are no folds."""
        return block_of(self.repeat)

    def condition(self, leave_out: str = "") -> dict[str, Any]:
        """Whatever else distinguishes runs, such as the learning rate: p is looked at under each by itself."""
        known = (*_OF_SYSTEM, *REPEATS, *self.further, leave_out)
        return {key: value for key, value in self.settings.items() if key not in known}

    def row(self) -> dict[str, Any]:
        """The line of results.csv."""
        first: dict[str, Any] = {}
        if TASKS[self.task].is_cross_validated:
            first = {"p": self.settings.get("p", ""), "start": self.start, "fold": self.settings.get("fold", "")}
        others = {key: value for key, value in self.settings.items() if key not in first}
        measured = {key: self.measured.get(key, "") for key in TASKS[self.task].measured}
        return first | others | measured | {"status": self.status}


def block_of(repeat: Repeat) -> Repeat:
    """Seeds of one fold share its text, so they are not observations of their own."""
    return repeat[:1]


def unit_of(results: Sequence[RunResult]) -> str:
    """What observations are called: fold, or seed where there are no folds; run where neither varies."""
    return next((str(key) for result in results for key, _ in result.block), "run")


def load_results(folder: Path, failures: Mapping[str, str] | None = None) -> list[RunResult]:
    """Every run of the sweep's plan, done or not.

    failures: why runs failed, by their names; without it, those that the last summary knows of have failed. So have
    those whose folders say so: nobody waits for SLURM's tasks.
    """
    plan = _plan(folder)
    failed = _failed_before(folder) if failures is None else failures.keys()
    task = plan.get("task", "language")
    loaded = [_load(folder / cell["name"], task, cell["settings"], cell["name"] in failed) for cell in plan["cells"]]
    beside = [cell.get("is_baseline", False) for cell in plan["cells"]]
    return told_apart([replace(one, is_baseline=own) for one, own in zip(loaded, beside, strict=True)])


def told_apart(results: Sequence[RunResult]) -> list[RunResult]:
    """Runs of a sweep, the baselines with the keys in which each differs from the whole grid."""
    in_grid: dict[str, list[Any]] = {}
    for key, value in (item for result in results if not result.is_baseline for item in result.settings.items()):
        in_grid.setdefault(key, []).append(value)

    def further(result: RunResult) -> tuple[str, ...]:
        own = result.condition().items() if result.is_baseline else ()
        return tuple(key for key, value in own if value not in in_grid.get(key, []))

    return [replace(result, further=further(result)) for result in results]


def _failed_before(folder: Path) -> set[str]:
    try:
        return set(json.loads((folder / "results.json").read_text(encoding="utf-8"))["failed"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def load_about(folder: Path) -> About:
    """What the recipe of the sweep says of it."""
    return About.model_validate(_plan(folder).get("about", {}))


def is_sweep(folder: Path) -> bool:
    return (folder / PLAN).is_file()


def _plan(folder: Path) -> dict[str, Any]:
    try:
        plan: dict[str, Any] = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        plan["cells"]
    except (OSError, ValueError, KeyError):
        raise InputError(f"{folder} is not the folder of a sweep: there is no readable {PLAN} in it") from None
    return plan


def by_condition(results: Sequence[RunResult], leave_out: str = "") -> dict[str, list[RunResult]]:
    """All runs under each learning rate, or whatever else varies beside p.

    A baseline stands under each that it does not contradict: it may lack keys of the grid, and have further ones.
    """
    in_grid = [result for result in results if not result.is_baseline]
    conditions = {_in_words(one): one for one in (result.condition(leave_out) for result in in_grid)}
    return {
        words: [result for result in results if _is_under(condition, result, leave_out)]
        for words, condition in conditions.items()
    }


def _is_under(condition: Mapping[str, Any], result: RunResult, leave_out: str) -> bool:
    own = result.condition(leave_out)
    if not result.is_baseline:
        return own == condition
    return all(condition.get(key, value) == value for key, value in own.items())


def _in_words(condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in condition.items())


def by_system(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """The finished runs of each choice of settings, all seeds and folds of it together, in the order of the plan."""
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        done = groups.setdefault(system_of(result), [])
        if result.status == "done":
            done.append(result)
    return {name: done for name, done in groups.items() if done}


def system_of(result: RunResult) -> str:
    """The choice of settings that a run is one seed or fold of, in words."""
    name = _in_words({key: value for key, value in result.settings.items() if key not in REPEATS})
    return name or result.folder.name


def write_results(results: Sequence[RunResult], extra: Mapping[str, Any], folder: Path) -> None:
    """results.csv, and results.json with the same rows and more."""
    rows = [result.row() for result in results]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    measured = (*TASKS[results[0].task].measured, "status")
    columns.sort(key=lambda key: key in measured)  # stable: what was measured comes last
    failed = [os.path.relpath(result.folder, folder) for result in results if result.status == "failed"]
    everything = json.dumps({"runs": rows, "failed": failed, **extra}, indent=1, ensure_ascii=False)
    write_texts({folder / "results.csv": as_csv(rows, columns), folder / "results.json": everything})


def _load(folder: Path, task: str, settings: dict[str, Any], has_failed: bool) -> RunResult:
    untrained = TASKS[task].untrained_loss(Run(folder))
    if not is_done(folder):
        status = "failed" if has_failed or Run(folder).failure() is not None else "missing"
        return RunResult(folder, task, settings, status, untrained_loss=untrained)
    run = Run(folder)
    measured = run.result(TASKS[task].result_type).content()
    if not TASKS[task].is_cross_validated:
        return RunResult(folder, task, settings, "done", measured)
    lines = run.metrics()
    looks = [line.attention for line in lines]
    return RunResult(
        folder,
        task,
        settings,
        "done",
        measured,
        [line.step for line in lines],
        [line.measures["val_loss"] for line in lines],
        [[_mean(scale) for scale in line.scales.values()] for line in lines if line.scales],
        TASKS[task].scale_start(run),
        [_mean([layer.entropy for layer in layers]) for layers in looks],
        [_mean([layer.saturated for layer in layers]) for layers in looks],
        [use for layers in looks if (use := _use_of_bound(layers)) is not None],
        [max(max(layer.largest_logit) for layer in layers) for layers in looks],
        untrained,
    )


def _use_of_bound(layers: Sequence[LayerAttention]) -> float | None:
    uses = [layer.use_of_bound for layer in layers]
    return statistics.fmean(use for heads in uses if heads is not None for use in heads) if None not in uses else None


def _mean(numbers: Any) -> float:
    """Of a number, a list, or lists of lists of one length."""
    if isinstance(numbers, (int, float)):
        return float(numbers)
    return statistics.fmean(map(_mean, numbers))
