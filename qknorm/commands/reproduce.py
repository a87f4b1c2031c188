"""`qknorm reproduce`."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from qknorm.commands._minutes import checked_minutes
from qknorm.commands._running import Address, Gpus, Jobs, Running, Submit, Where
from qknorm.errors import InputError
from qknorm.screen import Screen

Size = Literal["smoke", "small", "medium", "paper"]

_WIDTH = 120  # of a table in a file


def _names() -> list[str]:
    from qknorm.experiments.papers.table import names

    return [*names(), "lp-figures"]


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A table or the figures of a paper (henry-table1 … henry-table6, henry-figures, lp-figures, "
            "future-work, head-dimension), or a table of your own (YAML).",
            autocompletion=_names,
        ),
    ],
    size: Annotated[
        Size,
        typer.Option(
            help="smoke takes minutes, small an hour or two on a CPU, medium half an hour a run (or --minutes); "
            "paper is the published setting, for a GPU."
        ),
    ] = "small",
    minutes: Annotated[
        float | None,
        typer.Option(
            callback=checked_minutes, help="Plan runs of this many minutes at the size medium, in place of 30."
        ),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="Another corpus in the paper's place: a name (qknorm data list) or a folder.")
    ] = None,
    add: Annotated[
        list[Path] | None, typer.Option(help="A YAML file with a row, or a list of rows, to add to the table.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train this many seeds of each system.")] = 1,
    jobs: Jobs = None,
    backend: Where = "local",
    address: Address = None,
    gpus: Gpus = None,
    submit: Submit = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs, with a guess of their time.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train what a table of the papers needs, and print it with our numbers beside the published ones.

    Runs that are done are kept: a second call computes only what is missing.
    """
    running = Running(jobs, backend, address, gpus, submit)
    options = _Options(size, minutes, corpus, add or [], seeds, running, dry_run, runs, as_json)
    if minutes is not None and size != "medium":
        raise InputError(f"--minutes are for --size medium; the size {size} says how many updates its runs have")
    if experiment == "lp-figures":
        _sweep(options)
    else:
        _tables(experiment, options)


@dataclass(frozen=True)
class _Options:
    size: Size
    minutes: float | None
    corpus: str | None
    added: list[Path]
    seeds: int
    running: Running
    dry_run: bool
    runs: Path
    as_json: bool


def _tables(experiment: str, options: _Options) -> None:
    from qknorm.commands._dry_run import list_runs, print_table
    from qknorm.experiments.papers.output import setting, write
    from qknorm.experiments.papers.plan import plan
    from qknorm.experiments.papers.sizes import MEDIUM_MINUTES
    from qknorm.experiments.papers.table import load_table
    from qknorm.experiments.papers.views import view
    from qknorm.runs.run import Run

    runner, table = options.running.runner(), load_table(experiment, options.added)
    origin = "+".join([experiment, *(path.name for path in options.added)])
    minutes = MEDIUM_MINUTES if options.minutes is None else options.minutes
    planned = plan(table, origin, options.size, options.corpus, options.seeds, minutes)
    folder = options.runs / planned.experiment.folder
    console = Screen(stderr=options.as_json, width=None if sys.stdout.isatty() else _WIDTH)
    console.print("\n".join([table.title, *setting(planned.experiment), ""]))
    if options.dry_run:
        list_runs(planned.runs(folder), folder, options.running.jobs, options.as_json)
        return
    failures = planned.run(folder, console, runner)
    result = view(planned.experiment, folder)
    written = write(planned, result, folder)
    if options.as_json:
        print(written.with_suffix(".json").read_text(encoding="utf-8"))
    else:
        for corpus, own in itertools.groupby(result.lines, key=lambda line: line[0]):
            console.print(f"\n{corpus}")
            print_table(result.columns[1:], [line[1:] for line in own], console)
    for caveat in result.caveats:
        console.print(caveat)
    console.print(f"Written: {written}, and the same as .csv, .tex and .json")
    options.running.hand_over(runner, folder, console)
    for run, reason in failures.items():
        console.print(f"failed: {run}: {reason} (more in {Run(folder / run).log_file})")
    raise typer.Exit(1 if failures else 0)


def _sweep(options: _Options) -> None:
    """The second paper's figures are a sweep, with a recipe of its own."""
    if options.added:
        raise InputError("lp-figures is a sweep, which has no rows to add to; change its recipe with: qknorm sweep")
    if options.minutes is not None:
        raise InputError("lp-figures trains language models, for iterations; change them with: qknorm sweep")
    from qknorm.commands.sweep import run_sweep

    changes = [f"seed={list(range(1, options.seeds + 1))}"] if options.seeds > 1 else []
    if options.corpus is not None:
        is_file = Path(options.corpus).is_file()
        changes += [f"file={options.corpus}", "corpus=null"] if is_file else [f"corpus={options.corpus}"]
    recipe = Path("lp-shakespeare")
    run_sweep(recipe, changes, options.size, options.running, options.dry_run, options.runs, options.as_json)
