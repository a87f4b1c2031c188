"""What `sweep` and `reproduce` have in common: where their runs take place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from qknorm.errors import InputError
from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.experiments.cells import Runner

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


@dataclass(frozen=True)
class Running:
    """These options as they were given."""

    jobs: int | None = None
    backend: Backend = "local"
    address: str | None = None
    gpus: str | None = None
    submit: bool = False

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

    def hand_over(self, runner: Runner, folder: Path, console: Screen) -> None:
        """Write the SLURM script of what is missing, if there is such, and submit it if that is wanted."""
        from qknorm.experiments.slurm import Slurm, submit

        if not isinstance(runner, Slurm) or not runner.cells:
            return
        script = runner.write(folder)
        console.print(submit(script) if self.submit else f"Submit with: sbatch {script}")
        console.print(
            f"{len(runner.cells)} runs are left to SLURM; once they are done, the same command shows results."
        )
