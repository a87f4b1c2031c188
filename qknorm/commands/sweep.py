"""`qknorm sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from qknorm.screen import Screen

Backend = Literal["local", "dask", "ray"]


def sweep(
    recipe: Annotated[Path, typer.Argument(help="A recipe (YAML); lists in it span a grid.")],
    settings: Annotated[list[str] | None, typer.Argument(help="Changes to it: key=value, such as p=[2,3].")] = None,
    size: Annotated[str | None, typer.Option(help="One of the recipe's sizes, such as smoke.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per core without it.")] = None,
    backend: Annotated[Backend, typer.Option(help="Processes of this machine, or a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the cluster; one is started here without it.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a grid of models, language models with cross-validation. A sweep that was stopped goes on where it was."""
    from qknorm.experiments.sweep import grid as sweeps
    from qknorm.experiments.sweep.figures import draw
    from qknorm.experiments.sweep.results import load_results
    from qknorm.experiments.sweep.summary import summarise

    console = Screen(stderr=as_json)
    planned = sweeps.plan(recipe, size, settings or [])
    folder = runs / planned.name
    failures = sweeps.run(planned, folder, console, backend, jobs, address)
    results = load_results(folder, failures)
    summary = summarise(results, folder)
    draw(results, folder / "figures")
    if as_json:
        print((folder / "results.json").read_text(encoding="utf-8"))
    elif summary:
        console.print(f"{summary}\n")
    for name, reason in failures.items():
        console.print(f"failed: {name}: {reason} (more in {folder / name / 'log.txt'})")
    console.print(f"{len(results) - len(failures)} of {len(results)} runs in {folder}")
    raise typer.Exit(1 if failures else 0)
