"""Weights & Biases, which writes to a folder of the run and sends nothing unless WANDB_MODE says so.

`wandb sync RUN/wandb/offline-run-…` sends it later. A run that is resumed has the same id, so both parts become one.
The id is drawn and kept in the run folder: runs of another corpus or size may have a folder of the same name.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from qknorm.data.textfiles import replacing
from qknorm.runs.run import Run

_PROJECT = "qknorm"  # unless WANDB_PROJECT names another


class WandB:
    def __init__(self, run: Run, after: int) -> None:  # noqa: ARG002
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=run.folder,
            name=run.folder.name,
            id=_id_of(run),
            resume="allow",
            config=run.recipe.model_dump(mode="json"),
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def _id_of(run: Run) -> str:
    """Drawn when a run is first followed."""
    file = run.wandb_id_file
    if not file.exists():
        with replacing(file) as new:
            new.write(secrets.token_hex(8).encode())
    return file.read_text(encoding="utf-8")
