"""Loggers by the keys of a recipe that switch them on; a key is the name of the package and of the extra, too."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from qknorm.errors import needs
from qknorm.runs.recipe import AnyTraining
from qknorm.runs.run import Run
from qknorm.training.loggers.logger import Logger
from qknorm.training.loggers.tensorboard import TensorBoard
from qknorm.training.loggers.wandb import WandB

LOGGERS: dict[str, Callable[[Run, int], Logger]] = {"tensorboard": TensorBoard, "wandb": WandB}


def chosen_loggers(training: AnyTraining) -> tuple[str, ...]:
    """Those that a recipe asks for."""
    return tuple(name for name in LOGGERS if getattr(training, name))


def check_installed(names: Sequence[str]) -> None:
    """An InputError that says how to get what is missing, before any work is lost."""
    for name in names:
        with needs(name, f"training.{name}"):
            importlib.import_module(name)
