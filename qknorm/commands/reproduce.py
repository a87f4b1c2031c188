"""`qknorm reproduce`."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.experiments.cells import Cell

Name = Literal[
    "henry-table1",
    "henry-table2",
    "henry-table3",
    "henry-table4",
    "henry-table5",
    "henry-table6",
    "henry-figures",
    "lp-figures",
    "future-work",
]
Size = Literal["smoke", "small", "medium", "paper"]

_WIDTH = 120  # of a table in a file


def reproduce(
    experiment: Annotated[Name, typer.Argument(help="A table or the figures of a paper.")],
    size: Annotated[
        Size,
        typer.Option(
            help="smoke takes minutes, small an hour or two on a CPU, medium half an hour a run; "
            "paper is the published setting, for a GPU."
        ),
    ] = "small",
    corpus: Annotated[
        str | None, typer.Option(help="Another corpus in the paper's place: a name (qknorm data list) or a folder.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each system.")] = 1,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per core without it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs, with a guess of their time.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train what a table of the papers needs, and print it with our numbers beside the published ones.

    Runs that are done are kept: a second call computes only what is missing.
    """
    options = _Options(size, corpus, seeds, jobs, dry_run, runs, as_json)
    if experiment == "lp-figures":
        _sweep(options)
    else:
        _tables(experiment, options)


@dataclass(frozen=True)
class _Options:
    size: Size
    corpus: str | None
    seeds: int
    jobs: int | None
    dry_run: bool
    runs: Path
    as_json: bool


def _tables(experiment: str, options: _Options) -> None:
    from qknorm.experiments.cells import run_missing
    from qknorm.experiments.papers import reproduce
    from qknorm.experiments.papers.henry import SHRUNK

    plan = reproduce.plan(experiment, options.size, options.corpus, options.seeds)
    folder = options.runs / f"reproduce-{options.size}"
    console = Screen(stderr=options.as_json, width=None if sys.stdout.isatty() else _WIDTH)
    if options.dry_run:
        _list(plan.runs, folder, options)
        return
    console.print(f"{plan.experiment.title}\n{SHRUNK[options.size]}\n")
    failures = run_missing(experiment, plan.runs, folder, console, jobs=options.jobs)
    found = reproduce.table(plan, folder)
    written = reproduce.write(plan, found, folder)
    if options.as_json:
        print(written.with_suffix(".json").read_text(encoding="utf-8"))
    else:
        _print_by_corpus(found.columns, found.lines, console)
    console.print(f"Written: {written}")
    for name, reason in failures.items():
        console.print(f"failed: {name}: {reason} (more in {folder / name / 'log.txt'})")
    raise typer.Exit(1 if failures else 0)


def _sweep(options: _Options) -> None:
    """The second paper's figures are a sweep, with a recipe of its own."""
    from qknorm.commands.sweep import sweep
    from qknorm.experiments.sweep import grid as sweeps

    recipe = Path("lp-shakespeare")
    changes = [f"seed={list(range(1, options.seeds + 1))}"] if options.seeds > 1 else []
    if options.corpus is not None:
        is_file = Path(options.corpus).is_file()
        changes += [f"file={options.corpus}", "corpus=null"] if is_file else [f"corpus={options.corpus}"]
    if options.dry_run:
        planned = sweeps.plan(recipe, options.size, changes)
        _list(planned.cells, options.runs / planned.name, options)
    else:
        sweep(recipe, changes, options.size, options.jobs, "local", None, options.runs, options.as_json)


def _list(cells: Sequence[Cell], folder: Path, options: _Options) -> None:
    """What would be run, and how long that may take."""
    from qknorm.experiments.cells import cores, is_done
    from qknorm.experiments.estimate import estimated_seconds

    missing = [cell for cell in cells if not is_done(folder / cell.name)]
    seconds = estimated_seconds(missing, options.jobs)
    total = sum(seconds.values()) / min(options.jobs or cores(), max(len(missing), 1))
    if options.as_json:
        listed = [{"run": name, "estimated_seconds": round(value)} for name, value in seconds.items()]
        print(
            json.dumps({"runs": listed, "done": len(cells) - len(missing), "estimated_seconds": round(total)}, indent=1)
        )
        return
    console = Screen()
    _print(["run", "estimate"], [[name, _duration(value)] for name, value in seconds.items()], console)
    done = f", {len(cells) - len(missing)} more are done" if len(missing) < len(cells) else ""
    console.print(f"{len(missing)} runs{done}. On this machine about {_duration(total)} in all, by a rough guess.")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:,.1f} h"


def _print_by_corpus(columns: list[str], lines: list[list[str]], console: Screen) -> None:
    """One table for each corpus, which stands in the first column."""
    for corpus, own in itertools.groupby(lines, key=lambda line: line[0]):
        console.print(f"\n{corpus}")
        _print(columns[1:], [line[1:] for line in own], console)


def _print(columns: list[str], lines: list[list[str]], console: Screen) -> None:
    table = Table(*columns, box=None)
    for line in lines:
        table.add_row(*line)
    console.print(table)
