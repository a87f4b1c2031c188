"""Translators of a sweep side by side: scores, intervals and p-values as everywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from qknorm.errors import InputError
from qknorm.evaluation import wording
from qknorm.evaluation.significance import Comparison, standings
from qknorm.evaluation.systems import lines_of_test
from qknorm.experiments.sweep.answer import Answer, Table
from qknorm.experiments.sweep.results import RunResult, by_system, is_sweep, load_results, system_of
from qknorm.metrics.table import is_too_short_for_bleu
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS


def answer(results: Sequence[RunResult]) -> Answer:
    """Every system with its seeds against the first of the plan, where all were tested on the same sentences."""
    systems, first = by_system(results), system_of(results[0])
    if not systems:
        return Answer()
    obstacle = _obstacle(systems, first)
    compared, verdicts = ({}, [f"Nothing is compared: {obstacle}."]) if obstacle else _compared(systems)
    return Answer(
        sentences=verdicts,
        tables=[_table(systems, compared)],
        numbers={"comparisons": [asdict(row) for row in compared.values()]},
        records=[_record(name, runs, compared.get(name)) for name, runs in systems.items()],
    )


def as_systems(argument: str) -> list[str]:
    """An argument of `qknorm compare`; for the folder of a sweep, its systems with their finished seeds."""
    folder = Path(argument)
    if not is_sweep(folder):
        return [argument]
    results = load_results(folder)
    if TASKS[results[0].task].is_cross_validated:
        raise InputError(f"{folder} holds language models, which have no BLEU; they are compared in its summary.md")
    systems = by_system(results)
    if not systems:
        raise InputError(f"no run of {folder} is done yet; go on with: qknorm sweep")
    return [f"{name}={','.join(str(run.folder) for run in runs)}" for name, runs in systems.items()]


def _obstacle(systems: Mapping[str, Sequence[RunResult]], first: str) -> str:
    """Why systems cannot be compared; empty where they can."""
    if first not in systems:
        return f"no run of {first}, which the others are compared with, is done"
    runs = [run.folder for own in systems.values() for run in own]
    if not all(Run(run).test_set().references.is_file() for run in runs):
        return "these runs were tested on several language pairs; compare two with: qknorm compare"
    if len({tuple(lines_of_test(run, "references", as_tokens=False)) for run in runs}) > 1:
        return "these runs were not tested on the same sentences; compare those that were with: qknorm compare"
    return ""


def _compared(systems: Mapping[str, Sequence[RunResult]]) -> tuple[dict[str, Comparison], list[str]]:
    """The systems by their names, and which of them differ, as far as BLEU can tell."""
    hypotheses = {
        name: [lines_of_test(run.folder, "hypotheses", as_tokens=False) for run in own] for name, own in systems.items()
    }
    references = lines_of_test(next(iter(systems.values()))[0].folder, "references", as_tokens=False)
    rows = standings(hypotheses, references, tokenized=False)
    verdicts = [wording.TOO_SHORT] if is_too_short_for_bleu(references) else wording.verdicts(rows)
    return {row.name: row for row in rows}, verdicts


def _record(name: str, runs: Sequence[RunResult], row: Comparison | None) -> dict[str, Any]:
    """A line of the table, not rounded."""
    own, measures = _shown(runs, row), TASKS[runs[0].task].headings
    means = {measure: fmean(run.measured[measure] for run in own) for measure in measures}
    compared = {key: value for key, value in (asdict(row) if row else {}).items() if key not in ("name", "seeds")}
    return {"system": name, "runs": len(own)} | means | compared


def _table(systems: Mapping[str, Sequence[RunResult]], compared: Mapping[str, Comparison]) -> Table:
    task = TASKS[next(iter(systems.values()))[0].task]
    rows = []
    for name, runs in systems.items():
        row = compared.get(name)
        own = _shown(runs, row)
        means = [f"{fmean(run.measured[measure] for run in own):.2f}" for measure in task.headings]
        if row:
            between = wording.interval(row.difference_low, row.difference_high, signed=True)
            difference = "" if row.difference is None else f"{row.difference:+.2f}"
            means[0] = wording.bleu_of(row)
            means += [difference, between, wording.p_value(row.p_value, row.p_is_bound)]
        rows.append([name, *means, str(len(own))])
    against = ["difference", "95 %", "p"] if compared else []
    note = f"Compared with {next(iter(systems))}. A 95 % interval is {_about(compared)}" if len(compared) > 1 else ""
    return Table("", note, ["", *task.headings.values(), *against, "runs"], rows)


def _shown(runs: Sequence[RunResult], row: Comparison | None) -> Sequence[RunResult]:
    """Where only first seeds are compared, all columns are theirs."""
    return runs[: row.seeds] if row else runs


def _about(compared: Mapping[str, Comparison]) -> str:
    return wording.about_interval(min(row.seeds for row in compared.values()))
