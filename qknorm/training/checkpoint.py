"""Checkpoints: saved atomically, recognised when damaged, enough to go on exactly.

    checkpoints/step-000600/{model.safetensors, optimizer.safetensors, state.json}   last   best

`last` and `best` are small files that hold a folder's name. state.json is written last and holds the digests of the
other two, so a checkpoint is whole if it and they agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError

_TENSOR_FILES = ("model.safetensors", "optimizer.safetensors")
_RANDOM_STATE = "random_state"


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> Path:
        """Write a checkpoint and point `last` at it. The folder appears whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"step-{step:06d}"
        scratch = Path(tempfile.mkdtemp(dir=self.folder, prefix=".saving-"))
        try:
            _write_tensors(scratch / "model.safetensors", dict(model.state_dict()))
            tensors = _optimizer_tensors(model, optimizer) | {_RANDOM_STATE: torch.get_rng_state()}
            _write_tensors(scratch / "optimizer.safetensors", tensors)
            digests = {name: _digest(scratch / name) for name in _TENSOR_FILES}
            with replacing(scratch / "state.json") as file:
                file.write(json.dumps({"step": step, "digests": digests, **state}).encode())
            shutil.rmtree(target, ignore_errors=True)
            scratch.replace(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        self._point("last", target)
        return target

    def mark_best(self, checkpoint: Path) -> None:
        self._point("best", checkpoint)

    def best(self) -> Path | None:
        """The checkpoint with the best score, if it is whole; else the newest that is, with a warning."""
        pointed = self._pointed("best")
        if pointed is not None and _is_whole(pointed):
            return pointed
        if pointed is not None:
            warnings.warn(f"{pointed}, the best checkpoint, is damaged; the newest whole one is used", stacklevel=2)
        return self.newest()

    def newest(self) -> Path | None:
        """The newest whole checkpoint; a damaged one is named in a warning and passed over."""
        for folder in sorted(self.folder.glob("step-*"), reverse=True):
            if _is_whole(folder):
                return folder
            warnings.warn(f"{folder} is damaged or incomplete; the checkpoint before it is used", stacklevel=2)
        return None

    def restore(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Put everything back as it was at the time of saving; returns the state that was saved with it."""
        load_model(checkpoint, model)
        tensors = load_file(checkpoint / "optimizer.safetensors")
        torch.set_rng_state(tensors.pop(_RANDOM_STATE))
        _restore_optimizer(model, optimizer, tensors)
        state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
        return state

    def remove_old(self, keep: int) -> None:
        """Keep the newest `keep` checkpoints, and the best."""
        best = self._pointed("best")
        for folder in sorted(self.folder.glob("step-*"), reverse=True)[keep:]:
            if folder != best:
                shutil.rmtree(folder, ignore_errors=True)

    def _point(self, name: str, checkpoint: Path) -> None:
        with replacing(self.folder / name) as file:
            file.write(checkpoint.name.encode() + b"\n")

    def _pointed(self, name: str) -> Path | None:
        try:
            return self.folder / (self.folder / name).read_text().strip()
        except FileNotFoundError:
            return None


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint into a model of the same shape."""
    try:
        model.load_state_dict(load_file(checkpoint / "model.safetensors"))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{checkpoint} does not fit the recipe and vocabulary of its run: {reason}") from None


def _is_whole(checkpoint: Path) -> bool:
    try:
        digests = json.loads((checkpoint / "state.json").read_text())["digests"]
        return all(_digest(checkpoint / name) == digests[name] for name in _TENSOR_FILES)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory under the names of the parameters: `exp_avg of encoder.0…`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key} of {names[parameter]}": torch.as_tensor(value)
        for parameter, memory in optimizer.state.items()
        for key, value in memory.items()
    }


def _restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for label, tensor in tensors.items():
        key, _, name = label.partition(" of ")
        parameter = parameters[name]
        optimizer.state[parameter][key] = tensor if key == "step" else tensor.to(parameter.device)
