"""`qknorm sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qknorm.commands._running import Address, AsJson, DryRun, Gpus, Jobs, Running, Runs, Submit, Where


def sweep(
    recipe: Annotated[Path, typer.Argument(help="A recipe (YAML); lists in it span a grid.")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings that replace those of the recipe: key=value, such as p=[2,3].")
    ] = None,
    size: Annotated[str | None, typer.Option(help="One of the recipe's sizes, such as smoke.")] = None,
    jobs: Jobs = None,
    backend: Where = "local",
    address: Address = None,
    gpus: Gpus = None,
    submit: Submit = False,
    dry_run: DryRun = False,
    runs: Runs = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Train a grid of models, language models with cross-validation. A sweep that was stopped resumes where it was."""
    from qknorm.experiments.spanned import plan_sweep

    running = Running(jobs, backend, address, gpus, submit, dry_run, runs, as_json)
    running.carry_out(running.runner(), plan_sweep(recipe, size, settings or []))
