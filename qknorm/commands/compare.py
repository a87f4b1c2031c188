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
            help="Run folders or files of translations; several seeds of a system as NAME=PATH,PATH. "
            "The first is the baseline."
        ),
    ],
    ref: Annotated[Path | None, typer.Option(help="References; without it, those of the run folders.")] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="BLEU of the tokens as they stand.")] = False,
    method: Annotated[Method, typer.Option(help="How p-values are computed.")] = "bootstrap",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Whether systems differ in BLEU by more than chance."""
    from qknorm.evaluation.significance import compare as compare_systems
    from qknorm.evaluation.systems import read_systems

    given = read_systems(systems, ref, tokenized)
    found = compare_systems(given.runs, given.references, tokenized, method)
    if as_json:
        print(json.dumps([asdict(row) for row in found], indent=1))
        return
    table = Table("system", "BLEU", "95 %", "seeds", "difference", "95 %", "p", box=None)
    for row in found:
        bleu = f"{row.bleu:.2f}" + ("" if row.bleu_sd is None else f" ± {row.bleu_sd:.2f}")
        against = ("", "", "baseline")
        if row.p_value is not None:
            interval = f"{row.difference_low:+.2f} – {row.difference_high:+.2f}"
            against = (f"{row.difference:+.2f}", interval, f"{row.p_value:.4f}")
        table.add_row(row.name, bleu, f"{row.low:.2f} – {row.high:.2f}", str(row.seeds), *against)
    Screen().print(table)
