"""What `sweep` and `reproduce` have in common: the runs of a plan take place somewhere, and are shown."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from qknorm.errors import InputError
from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.experiments.cells import Runner
    from qknorm.experiments.page import Answer
    from qknorm.experiments.plan import Plan

Backend = Literal["local", "dask", "slurm"]

Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Train this many runs at a time; without it, one per core or GPU, or as many as a cluster has room for.",
    ),
]
Where = Annotated[
    Backend,
    typer.Option(help="Train in processes of this machine, on a cluster, or as a SLURM job array (writes its script)."),
]
Address = Annotated[str | None, typer.Option(help="The address of the Dask cluster; without it, one is started here.")]
Gpus = Annotated[
    str | None, typer.Option(help="Use these GPUs of this machine, such as 0,2, one for each run; without it, all.")
]
Submit = Annotated[bool, typer.Option("--submit", help="Hand the SLURM script to sbatch.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the runs, with a guess of their time.")]
Runs = Annotated[Path, typer.Option(help="Folder of all runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_WIDTH = 120  # of a table in a file


@dataclass(frozen=True)
class Running:
    """These options as they were given."""

    jobs: int | None = None
    backend: Backend = "local"
    address: str | None = None
    gpus: str | None = None
    submit: bool = False
    dry_run: bool = False
    runs: Path = Path("runs")
    as_json: bool = False

    def runner(self) -> Runner:
        """Whoever does it."""
        from qknorm.experiments.gpus import chosen_gpus
        from qknorm.experiments.machines import Machines
        from qknorm.experiments.slurm import Slurm

        if self.submit and self.backend != "slurm":
            raise InputError("--submit is for --backend slurm")
        if self.address is not None and self.backend != "dask":
            raise InputError("--address is for --backend dask")
        if self.backend == "slurm":
            if self.gpus is not None:
                raise InputError("--gpus is for this machine; SBATCH_GPUS=1 lets SLURM give each task a GPU")
            return Slurm(self.jobs)
        if self.gpus is not None and self.address is not None:
            raise InputError(
                f"--gpus is for --backend local, or dask without --address; CUDA_VISIBLE_DEVICES={self.gpus} where a "
                "cluster's workers are started lets them see these only"
            )
        return Machines(self.backend, self.jobs, self.address, chosen_gpus(self.gpus))

    def carry_out(self, runner: Runner, plan: Plan) -> None:
        """Train what is missing of a plan, and show what came out; ends the command, with 1 where runs have failed."""
        from qknorm.commands._dry_run import list_runs
        from qknorm.experiments.page import setting
        from qknorm.experiments.views.table import summarise
        from qknorm.runs.run import Run

        experiment = plan.experiment
        folder = experiment.folder(self.runs)
        console = Screen(stderr=self.as_json, width=None if sys.stdout.isatty() else _WIDTH)
        heading = "\n".join([*filter(None, [experiment.about.title]), *setting(experiment), ""])
        if self.dry_run:
            console.print(heading)
            list_runs(plan.runs(folder), folder, self.jobs, self.as_json)
            return
        failures = plan.run(folder, console, runner)
        console.print(heading)
        answer = summarise(experiment, folder)
        if self.as_json:
            print(experiment.numbers(folder).read_text(encoding="utf-8"))
        else:
            _show(answer, console)
        console.print(f"Written: {experiment.page(folder)}, and the same as .csv, .tex and .json")
        for name, reason in failures.items():
            console.print(f"failed: {name}: {reason} (more in {Run(folder / name).log_file})")
        runs = plan.runs(folder)
        done = sum(Run(folder / cell.name).is_done for cell in runs)
        console.print(f"{done} of {len(runs)} runs are done in {folder}")
        self._hand_over(runner, folder, console)
        raise typer.Exit(1 if failures else 0)

    def _hand_over(self, runner: Runner, folder: Path, console: Screen) -> None:
        """Write the SLURM script of what is missing, if there is such, and submit it if that is wanted."""
        from qknorm.experiments.slurm import Slurm, submit

        if not isinstance(runner, Slurm) or not runner.cells:
            return
        script = runner.write(folder)
        console.print(submit(script) if self.submit else f"Submit with: sbatch {script}")
        console.print(
            f"{len(runner.cells)} runs are left to SLURM; once they are done, the same command shows results."
        )


def _show(answer: Answer, console: Screen) -> None:
    """The tables, and the answer in words."""
    from qknorm.commands._dry_run import print_table

    for table in answer.tables:
        if table.rows:
            console.print("\n".join(filter(None, [table.title, table.note])))
            print_table(table.columns, table.rows, console)
            console.print()
    console.print("\n".join([" ".join(answer.sentences), *answer.caveats]))
