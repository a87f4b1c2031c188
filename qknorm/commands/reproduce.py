"""`qknorm reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from qknorm.commands._minutes import checked_minutes
from qknorm.commands._running import Address, AsJson, DryRun, Gpus, Jobs, Running, Runs, Submit, Where
from qknorm.errors import InputError

if TYPE_CHECKING:
    from qknorm.experiments.plan import Plan

Size = Literal["smoke", "small", "medium", "paper"]

_FIGURES = "lp-figures"


def _names() -> list[str]:
    from qknorm.experiments.recipe import names

    return [*names(), _FIGURES]


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
    dry_run: DryRun = False,
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Train what a table of the papers needs, and print it with our numbers beside the published ones.

    Runs that are done are kept: a second call computes only what is missing.
    """
    running = Running(jobs, backend, address, gpus, submit, dry_run, runs, as_json)
    if minutes is not None and size != "medium":
        raise InputError(f"--minutes are for --size medium; the size {size} says how many updates its runs have")
    runner = running.runner()
    if experiment == _FIGURES:
        plan = _figures(size, minutes, corpus, add or [], seeds)
    else:
        plan = _table(experiment, size, minutes, corpus, add or [], seeds)
    running.carry_out(runner, plan)


def _table(
    experiment: str, size: Size, minutes: float | None, corpus: str | None, added: list[Path], seeds: int
) -> Plan:
    from qknorm.experiments.listed import plan_table
    from qknorm.experiments.recipe import MEDIUM_MINUTES, load_table

    origin = "+".join([experiment, *(path.name for path in added)])
    return plan_table(load_table(experiment, added), origin, size, corpus, seeds, minutes or MEDIUM_MINUTES)


def _figures(size: Size, minutes: float | None, corpus: str | None, added: list[Path], seeds: int) -> Plan:
    """The second paper's figures are a sweep, with a recipe of its own."""
    from qknorm.experiments.spanned import plan_sweep

    if added:
        raise InputError("lp-figures is a sweep, which has no rows to add to; change its recipe with: qknorm sweep")
    if minutes is not None:
        raise InputError("lp-figures trains language models, for iterations; change them with: qknorm sweep")
    changes = [f"seed={list(range(1, seeds + 1))}"] if seeds > 1 else []
    if corpus is not None:
        changes += [f"file={corpus}", "corpus=null"] if Path(corpus).is_file() else [f"corpus={corpus}"]
    return plan_sweep(Path("lp-shakespeare"), size, changes)
