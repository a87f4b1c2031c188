"""`qknorm compare`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from qknorm.screen import Screen

Method = Literal["bootstrap", "randomization"]


def compare(
    systems: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, files of translations or the folder of a sweep; several seeds of a system as "
            "NAME=PATH,PATH. The first is the baseline."
        ),
    ],
    ref: Annotated[
        Path | None, typer.Option(help="The reference translations; without it, those of the run folders are used.")
    ] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="BLEU of the tokens as they stand.")] = False,
    method: Annotated[Method, typer.Option(help="How p-values are computed.")] = "bootstrap",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell whether systems differ in BLEU by more than chance."""
    from qknorm.evaluation import wording
    from qknorm.evaluation.significance import compare as compare_systems
    from qknorm.evaluation.significance import standings
    from qknorm.evaluation.systems import read_systems
    from qknorm.experiments.compare import as_systems
    from qknorm.experiments.experiment import is_sweep
    from qknorm.metrics.table import is_too_short_for_bleu

    listed = [system for argument in systems for system in as_systems(argument)]
    given = read_systems(listed, ref, tokenized)
    # Nobody chose which seeds of a sweep are done so far; those of a list were chosen, and a wrong one is refused.
    measure = standings if any(is_sweep(Path(argument)) for argument in systems) else compare_systems
    rows = measure(given.runs, given.references, tokenized, method)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    table = Table("system", "BLEU", "95 %", "seeds", "difference", "95 %", "p", box=None)
    for row in rows:
        against = ("", "", "baseline")
        if row.difference is not None:
            between = wording.interval(row.difference_low, row.difference_high, signed=True)
            against = (f"{row.difference:+.2f}", between, wording.p_value(row.p_value, row.p_is_bound))
        table.add_row(row.name, wording.bleu_of(row), wording.interval(row.low, row.high), str(row.seeds), *against)
    console = Screen()
    console.print(table)
    if is_too_short_for_bleu(given.references, tokenized):
        console.print(wording.TOO_SHORT)
    if rows[0].first_seeds_only:
        console.print(wording.FIRST_SEEDS)
    if len(rows) > 2:
        console.print(f"p-values are corrected by Holm's method for {len(rows) - 1} comparisons.")
