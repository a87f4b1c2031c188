"""`qknorm sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qknorm.commands._running import Address, Gpus, Jobs, Running, Submit, Where
from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.experiments.sweep.about import About
    from qknorm.experiments.sweep.answer import Answer


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs, with a guess of their time.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a grid of models, language models with cross-validation. A sweep that was stopped resumes where it was."""
    run_sweep(recipe, settings or [], size, Running(jobs, backend, address, gpus, submit), dry_run, runs, as_json)


def run_sweep(
    recipe: Path, settings: Sequence[str], size: str | None, running: Running, dry_run: bool, runs: Path, as_json: bool
) -> None:
    """The same for other commands."""
    from qknorm.commands._dry_run import list_runs
    from qknorm.experiments.sweep import grid as sweeps
    from qknorm.experiments.sweep.results import load_results
    from qknorm.experiments.sweep.views import summarise
    from qknorm.runs.run import Run, folder_of

    console = Screen(stderr=as_json)
    runner, planned = running.runner(), sweeps.plan(recipe, size, settings)
    folder = folder_of(planned.name, runs)
    if dry_run:
        list_runs(planned.runs, folder, running.jobs, as_json)
        return
    failures = sweeps.run(planned, folder, console, runner)
    results = load_results(folder, failures)
    answer = summarise(planned.about, results, folder)
    if as_json:
        print((folder / "results.json").read_text(encoding="utf-8"))
    else:
        console.print(_told(planned.about, answer, console.width))
    for name, reason in failures.items():
        console.print(f"failed: {name}: {reason} (more in {Run(folder / name).log_file})")
    done = {result.folder for result in results if result.status == "done"}
    console.print(f"{len(done)} of {len(planned.runs)} runs are done in {folder}")
    running.hand_over(runner, folder, console)
    raise typer.Exit(1 if failures else 0)


def _told(about: About, answer: Answer, width: int) -> str:
    """What was shrunk, the answer in words, and its tables where they fit on the screen; summary.md has them all."""
    from qknorm.experiments.sweep.answer import as_markdown

    tables = as_markdown(answer.tables)
    fits = all(len(line) <= width for line in tables.splitlines())
    return "\n\n".join(filter(None, [about.shrunk, tables if fits else "", " ".join(answer.sentences)])) + "\n"
