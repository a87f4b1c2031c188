"""What the runs of an experiment left on disk, as one table: a row for each run, with what distinguishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from qknorm.experiments.cells import REPEATS
from qknorm.experiments.experiment import Experiment
from qknorm.runs.contents import LayerAttention, ValidationLine
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS

PLAIN = "none"  # the `start` of runs without Lp normalisation
STARTS = ("same", "comparable")
_OF_SYSTEM = ("qk_norm", "p", "start")
Repeat = tuple[tuple[str, Any], ...]
"""Which fold and seed, as far as they vary: keys and values, the fold first."""
_NORMS = {"none": "no normalisation", "rms": "RMSNorm", "layer": "LayerNorm"}


@dataclass(frozen=True)
class RunResult:
    """One run: what distinguishes it, what came out, and its course."""

    folder: Path
    task: str
    settings: dict[str, Any]
    status: str
    """done, failed or missing."""
    measured: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[Any]] = field(default_factory=dict)
    """Of a task that is cross-validated, by name, a value for each validation: `_CURVES`."""
    scale_start: float | None = None
    untrained_loss: float | None = None
    """That of a model which has learned nothing; None where the run has not begun."""
    name: str = ""
    is_baseline: bool = False
    """Whether it stands beside the grid, and not in it."""
    further: tuple[str, ...] = ()
    """Keys in which a baseline differs from the whole grid, beside its normalisation: they are part of its name."""

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    @property
    def steps(self) -> list[int]:
        return self.curves["step"]

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

    def label(self, leave_out: str = "") -> str:
        """The kind of normalisation in words, and what else only this baseline has."""
        if self.start == PLAIN:
            norm = _NORMS.get(self.settings["qk_norm"], self.settings["qk_norm"])
        else:
            norm = "Lp norm" if self.p is None else f"p = {self.p:g}"
        sharp = [] if self.sharp_as is None else [f"as sharp as p = {self.sharp_as:g}"]
        keys = [key for key in self.further if key != leave_out]
        if keys and self.start == "comparable":
            keys.insert(0, "start")
        return ", ".join([norm, *sharp, *(f"{key} {self.settings[key]}" for key in keys)])

    @property
    def repeat(self) -> Repeat:
        """What two runs must share to be compared: the fold and the seed."""
        return tuple((key, self.settings[key]) for key in reversed(REPEATS) if key in self.settings)

    @property
    def block(self) -> Repeat:
        """What counts as one observation: the fold with all its seeds, or the seed where there are no folds.

        Seeds of one fold share its text, so they are not observations of their own.
        """
        return self.repeat[:1]

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


@dataclass(frozen=True)
class Tried:
    """The runs of a row at one learning rate, one for each seed and fold."""

    rate: float | None
    """None for that of the recipe, where no other is tried."""
    runs: list[RunResult]

    @property
    def dev_score(self) -> float | None:
        """Of the first seed, by which rates are compared; None while it has not been trained."""
        measured = self.runs[0].measured
        return measured.get("best_dev_score", measured.get("best_dev_bleu"))


@dataclass(frozen=True)
class Entrant:
    """A row on a corpus. Where it tried several learning rates, the best on dev stands for it."""

    name: str
    label: str
    tried: list[Tried]

    @property
    def chosen(self) -> Tried:
        """The only one, or the best of those that were trained so far; the first where none was."""
        trained = [tried for tried in self.tried if tried.dev_score is not None]
        return max(trained, key=lambda tried: tried.dev_score or 0.0, default=self.tried[0])

    @property
    def is_settled(self) -> bool:
        """Whether a rate can be chosen: there is one only, or some were trained and all others have failed.

        With SLURM others may still be queued or under way.
        """
        left = {tried.runs[0].status for tried in self.tried} - {"done"}
        return len(self.tried) == 1 or (left <= {"failed"} and any(tried.runs[0].is_done for tried in self.tried))

    @property
    def done(self) -> list[RunResult]:
        """The finished runs that stand for the row."""
        return [run for run in self.chosen.runs if run.is_done]

    @property
    def trained(self) -> list[RunResult]:
        """All finished runs, those at rates that were not chosen among them."""
        return [run for tried in self.tried for run in tried.runs if run.is_done]

    @property
    def rates_tried(self) -> int:
        """How many rates were trained with, where there are several."""
        return sum(tried.dev_score is not None for tried in self.tried) if len(self.tried) > 1 else 0

    @property
    def hours(self) -> float:
        """Of training, all seeds and all rates that were tried."""
        return sum(run.measured["seconds"] for run in self.trained) / 3600


@dataclass(frozen=True)
class CorpusRows:
    """The rows on one corpus."""

    corpus: str
    title: str
    entrants: list[Entrant]

    @property
    def done(self) -> dict[str, list[RunResult]]:
        """The finished runs by the labels of the rows that have some."""
        return {entrant.label: runs for entrant in self.entrants if (runs := entrant.done)}


def load_results(experiment: Experiment, folder: Path) -> list[RunResult]:
    """Every run of the plan, done or not, with its course where the task is cross-validated."""
    return told_apart([_with_course(result) for result in load_outcomes(experiment, folder)])


def load_outcomes(experiment: Experiment, folder: Path) -> list[RunResult]:
    """The same without their courses. A run has failed if its folder says so: nobody waits for SLURM's tasks."""
    kind, results = TASKS[experiment.task], []
    for cell in experiment.cells:
        run = Run(folder / cell.name)
        status = "done" if run.is_done else "missing" if run.failure() is None else "failed"
        measured = run.result(kind.result_type).content() if run.is_done else {}
        result = RunResult(run.folder, experiment.task, cell.settings, status, measured)
        results.append(replace(result, name=cell.name, is_baseline=cell.is_baseline))
    return results


def _with_course(result: RunResult) -> RunResult:
    run, kind = Run(result.folder), TASKS[result.task]
    untrained = kind.untrained_loss(run)
    if not (result.is_done and kind.is_cross_validated):
        return replace(result, untrained_loss=untrained)
    curves, start = curves_of(run.metrics()), kind.scale_start(run)
    return replace(result, curves=curves, scale_start=start, untrained_loss=untrained)


def curves_of(lines: Sequence[ValidationLine]) -> dict[str, list[Any]]:
    """Means over layers and heads, but for g, which is that of each layer, and for the largest logit of all.

    Without normalisation there is no g, and without a bound no use of it: these are empty then.
    """
    uses = [_use_of_bound(line.attention) for line in lines]
    return {
        "step": [line.step for line in lines],
        "val_loss": [line.measures["val_loss"] for line in lines],
        "g": [list(line.mean_scales.values()) for line in lines if line.scales],
        "entropy": [_mean([layer.entropy for layer in line.attention]) for line in lines],
        "saturated": [_mean([layer.saturated for layer in line.attention]) for line in lines],
        "use_of_bound": [use for use in uses if use is not None],
        "largest_logit": [max(max(layer.largest_logit) for layer in line.attention) for line in lines],
    }


def _use_of_bound(layers: Sequence[LayerAttention]) -> float | None:
    uses = [layer.use_of_bound for layer in layers]
    return fmean(use for heads in uses if heads is not None for use in heads) if None not in uses else None


def _mean(heads: Sequence[Sequence[float]]) -> float:
    return fmean(map(fmean, heads))


def told_apart(results: Sequence[RunResult]) -> list[RunResult]:
    """Runs of a sweep, the baselines with the keys in which each differs from the whole grid."""
    in_grid: dict[str, list[Any]] = {}
    for key, value in (item for result in results if not result.is_baseline for item in result.settings.items()):
        in_grid.setdefault(key, []).append(value)

    def further(result: RunResult) -> tuple[str, ...]:
        settings = result.condition().items() if result.is_baseline else ()
        return tuple(key for key, value in settings if value not in in_grid.get(key, []))

    return [replace(result, further=further(result)) for result in results]


def contests_of(experiment: Experiment, results: Sequence[RunResult]) -> list[CorpusRows]:
    """The runs by corpus, row and learning rate, as far as these tell them apart."""
    table, contests = experiment.table, []
    for corpus in experiment.corpora:
        rows: dict[str, dict[float | None, list[RunResult]]] = {}
        for run in results:
            if str(run.settings.get("corpus", "")) == corpus:
                name = system_of(run) if table is None else run.settings["system"]
                rate = None if table is None else run.settings.get("rate")
                rows.setdefault(name, {}).setdefault(rate, []).append(run)
        entrants = [
            Entrant(name, name if table is None else table.row(name).title, [Tried(*rate) for rate in by_rate.items()])
            for name, by_rate in rows.items()
        ]
        contests.append(CorpusRows(corpus, experiment.title_of(corpus), entrants))
    return contests


def system_of(result: RunResult) -> str:
    """The choice of settings that a run is one seed or fold of, in words."""
    name = in_words({key: value for key, value in result.settings.items() if key not in (*REPEATS, "corpus")})
    return name or result.folder.name


def by_condition(results: Sequence[RunResult], leave_out: str = "") -> dict[str, list[RunResult]]:
    """All runs under each learning rate, or whatever else varies beside p.

    A baseline stands under each that it does not contradict: it may lack keys of the grid, and have further ones.
    """
    in_grid = [result for result in results if not result.is_baseline]
    conditions = {in_words(condition): condition for condition in (run.condition(leave_out) for run in in_grid)}
    return {
        words: [result for result in results if _is_under(condition, result, leave_out)]
        for words, condition in conditions.items()
    }


def _is_under(condition: Mapping[str, Any], result: RunResult, leave_out: str) -> bool:
    settings = result.condition(leave_out)
    if not result.is_baseline:
        return settings == condition
    return all(condition.get(key, value) == value for key, value in settings.items())


def in_words(condition: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in condition.items())


def unit_of(results: Sequence[RunResult]) -> str:
    """What observations are called: fold, or seed where there are no folds; run where neither varies."""
    return next((str(key) for result in results for key, _ in result.block), "run")
