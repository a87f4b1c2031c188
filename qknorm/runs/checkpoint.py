"""Checkpoints: saved atomically, recognised when damaged, enough to go on exactly.

    checkpoints/step-000600/{model.safetensors, optimizer.safetensors, state.json}   last   best
    checkpoints/average/{model.safetensors, state.json}   (of a recipe with training.average)
    checkpoints/before/   (of a prolonged run: the best from before)   stable   (with a trapezoid schedule)

`last`, `best` and `stable` are small files that hold a folder's name. state.json is written last and holds the digests
of the others, so a checkpoint is whole if it and they agree. To use a model, its own file is enough.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, save_file
from torch import Tensor, nn

from qknorm import processes
from qknorm.data.textfiles import replacing, with_usual_permissions
from qknorm.errors import InputError
from qknorm.models.growth import grown, grown_memory

_RANDOM_STATE = "random_state"  # of each process and device, such as random_state.0.cpu

_HALF_WRITTEN = ".saving-"
_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_BEFORE = "before"
_DAMAGES = (OSError, ValueError, KeyError, TypeError)
"""What may come of reading a file that is not there, or not as it was written."""

T = TypeVar("T")


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> Path:
        """Write a checkpoint and point `last` at it. The folder appears whole or not at all.

        To be called by all processes: each adds its random state, and the first writes.
        """
        target = self._folder_of(step)
        random_states = processes.gathered(_random_state())
        if processes.rank() > 0:
            return target
        with self._appearing(target) as scratch:
            _write_tensors(scratch / _MODEL, dict(model.state_dict()))
            tensors = _optimizer_tensors(model, optimizer)
            for rank, states in enumerate(random_states):
                tensors |= {f"{_RANDOM_STATE}.{rank}.{device}": tensor for device, tensor in states.items()}
            _write_tensors(scratch / _OPTIMIZER, tensors)
            _write_state(scratch, {"step": step, **state})
        self._point("last", target)
        return target

    def mark_best(self, checkpoint: Path) -> None:
        """Point `best` at a checkpoint."""
        self._point("best", checkpoint)

    def mark_stable(self, checkpoint: Path) -> None:
        """Point `stable` at the checkpoint from which a run can be prolonged: the last before its decay."""
        self._point("stable", checkpoint)

    def stable(self) -> Path | None:
        """Where a run can be prolonged from, if it is whole."""
        pointed = self._pointed("stable")
        return pointed if pointed is not None and _is_whole(pointed) else None

    def best_score(self) -> float:
        """Of the checkpoint that `best` points at; -inf if there is none, or if it does not say."""
        pointed = self._pointed("best")
        if pointed is None or not _is_whole(pointed, only=_MODEL):
            return -math.inf
        state = _state(pointed)
        scores = [state["score"]] if "score" in state else state.get("progress", {}).get("scores", [])
        return float(scores[-1]) if scores else -math.inf

    def progress(self, checkpoint: Path) -> dict[str, Any]:
        """How far a run was when it was saved."""
        progress: dict[str, Any] = _state(checkpoint)["progress"]
        return progress

    def rewind(self, checkpoint: Path) -> None:
        """Make this checkpoint the newest, for another plan. What came after it goes, but for the best.

        That the first plan was shortened is forgotten, and the second one has its patience anew.
        """
        best, kept = self._pointed("best"), self.folder / _BEFORE
        if best is not None and best not in (checkpoint, kept):
            with self._appearing(kept) as scratch:
                shutil.copytree(best, scratch, dirs_exist_ok=True)
            self._point("best", kept)
        for folder in self.folder.glob("step-*"):
            if self._is_after(folder, checkpoint):
                shutil.rmtree(folder)
        progress = self.progress(checkpoint)
        progress |= {"shortened": None, "patience_from": len(progress["scores"])}
        _replace_state(checkpoint, {**_state(checkpoint), "progress": progress})
        self._point("last", checkpoint)

    @staticmethod
    def _is_after(first: Path, second: Path) -> bool:
        return (len(first.name), first.name) > (len(second.name), second.name)

    def load_best(self, model: nn.Module) -> Path | None:
        """Load the best weights, or the newest whole ones, with a warning; returns the checkpoint, if there is one."""
        checkpoint = self._pointed("best")
        weights = None if checkpoint is None else _whole_weights(checkpoint)
        if weights is None and checkpoint != self._pointed("best"):
            return self.load_best(model)  # a run that is under way has just found a better one
        if weights is None:
            if checkpoint is not None:
                warnings.warn(
                    f"{checkpoint}, the best checkpoint, is damaged; the newest whole one is used", stacklevel=2
                )
            checkpoint, weights = self._newest(_whole_weights)
        if checkpoint is not None and weights is not None:
            _put(weights, model, checkpoint)
        return checkpoint

    def newest(self) -> Path | None:
        """The newest checkpoint that training can go on from; a damaged one is named in a warning and passed over."""
        checkpoint, _ = self._newest(lambda folder: _is_whole(folder) or None)
        if checkpoint is None and any(_is_whole(folder, only=_MODEL) for folder in self.folder.glob("step-*")):
            raise InputError(
                f"{self.folder.parent} cannot be trained on: its checkpoints have no whole {_OPTIMIZER}; "
                "it can be used as it is, or trained anew as another name=NAME"
            )
        return checkpoint

    def _newest(self, read: Callable[[Path], T | None]) -> tuple[Path, T] | tuple[None, None]:
        """The newest checkpoint of which something can be read, and this; others are named in warnings."""
        folders = sorted(self.folder.glob("step-*"), key=lambda path: (len(path.name), path.name), reverse=True)
        contents = ((folder, content) for folder in folders if (content := read(folder)) is not None)
        found = next(contents, (None, None))
        for folder in folders[: None if found[0] is None else folders.index(found[0])]:
            used = "" if found[0] is None else f"; {found[0].name} is used in its place"
            warnings.warn(f"{folder} is damaged or incomplete{used}", stacklevel=2)
        return found

    def restore(self, checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Put everything back as it was at the time of saving; returns the state that was saved with it."""
        _put(load_file(checkpoint / _MODEL), model, checkpoint)
        tensors = load_file(checkpoint / _OPTIMIZER)
        random_states = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_RANDOM_STATE)}
        _restore_random_state(checkpoint, random_states)
        _restore_optimizer(model, optimizer, grown_memory(tensors, model), _numbers_in(checkpoint))
        return _state(checkpoint)

    def refuse_other_processes(self, checkpoint: Path) -> None:
        """A checkpoint is restored by as many processes as saved it."""
        with safe_open(checkpoint / _OPTIMIZER, "pt") as file:
            _refuse_other_processes(checkpoint, file.keys())

    def average(self, steps: Sequence[int]) -> dict[str, Tensor]:
        """The mean of the weights of some checkpoints."""
        total, number = dict[str, Tensor](), Counter[str]()  # those of an earlier version may lack a tensor
        for folder in map(self._folder_of, steps):
            for name, tensor in (_whole_weights(folder) or {}).items():
                total[name] = total[name] + tensor if name in total else tensor.double()
                number[name] += 1
        return {name: (tensor / number[name]).float() for name, tensor in total.items()}

    def save_best_average(self, weights: dict[str, Tensor], steps: Sequence[int], score: float) -> None:
        """Keep a mean that scored best as a checkpoint `average`, which only serves to be used."""
        average = self.folder / "average"
        with self._appearing(average) as scratch:
            _write_tensors(scratch / _MODEL, weights)
            _write_state(scratch, {"average_of": steps, "score": score})
        self._point("best", average)

    def remove_all_but(self, steps: Collection[int]) -> None:
        """Keep those of these steps, the best and the stable one; what a killed run left half-written goes too."""
        kept = {*map(self._folder_of, steps), self._pointed("best"), self._pointed("stable")}
        for folder in (*self.folder.glob("step-*"), *self.folder.glob(f"{_HALF_WRITTEN}*"), self.folder / _BEFORE):
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder_of(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    @contextlib.contextmanager
    def _appearing(self, target: Path) -> Iterator[Path]:
        """A folder to write to, which takes its name when it is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=self.folder, prefix=_HALF_WRITTEN))
        try:
            yield scratch
            with_usual_permissions(scratch)
            if target.exists():  # set aside, since to remove it takes longer than a moment, in which a kill may come
                old = Path(tempfile.mkdtemp(dir=self.folder, prefix=_HALF_WRITTEN))
                target.replace(old)
                scratch.replace(target)
                shutil.rmtree(old, ignore_errors=True)
            else:
                scratch.replace(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _point(self, name: str, checkpoint: Path) -> None:
        with replacing(self.folder / name) as file:
            file.write(checkpoint.name.encode() + b"\n")

    def _pointed(self, name: str) -> Path | None:
        try:
            return self.folder / (self.folder / name).read_text().strip()
        except FileNotFoundError:
            return None


def _put(weights: dict[str, Tensor], model: nn.Module, checkpoint: Path) -> None:
    """Load the weights of a checkpoint into a model of the same shape, or one that a run has grown to."""
    try:
        model.load_state_dict(grown(weights, model))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{checkpoint} does not fit the recipe and vocabulary of its run: {reason}") from None


def _is_whole(checkpoint: Path, only: str | None = None) -> bool:
    """Whether all its files are as they were written, or one of them is."""
    try:
        digests = _state(checkpoint)["digests"]
        names = {_MODEL, *digests} if only is None else {only}
        return all(_digest(checkpoint / name) == digests[name] for name in names)
    except _DAMAGES:
        return False


def _whole_weights(checkpoint: Path) -> dict[str, Tensor] | None:
    """The weights of a checkpoint, read once; None if they are not as they were written."""
    try:
        digest, content = _state(checkpoint)["digests"][_MODEL], (checkpoint / _MODEL).read_bytes()
    except _DAMAGES:
        return None
    return load(content) if hashlib.sha256(content).hexdigest() == digest else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise InputError(f"{path.name} of a checkpoint could not be written: {error}; is the disk full?") from None
    with_usual_permissions(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _write_state(checkpoint: Path, state: dict[str, Any]) -> None:
    """The last file of a checkpoint: it holds the digests of the others."""
    digests = {path.name: _digest(path) for path in sorted(checkpoint.glob("*.safetensors"))}
    _replace_state(checkpoint, {"digests": digests, **state})


def _replace_state(checkpoint: Path, state: dict[str, Any]) -> None:
    with replacing(checkpoint / _STATE) as file:
        file.write(json.dumps(state).encode())


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / _STATE).read_text())
    return state


def _random_state() -> dict[str, Tensor]:
    """What this process draws its random numbers from, by kind of device."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_random_state(checkpoint: Path, states: dict[str, Tensor]) -> None:
    _refuse_other_processes(checkpoint, states)
    mine = f"{_RANDOM_STATE}.{processes.rank()}"
    torch.set_rng_state(states[f"{mine}.cpu"])
    if torch.cuda.is_available() and f"{mine}.cuda" in states:
        torch.cuda.set_rng_state(states[f"{mine}.cuda"])


def _refuse_other_processes(checkpoint: Path, names: Iterable[str]) -> None:
    """An InputError if the tensors of these names hold the random states of more or fewer processes."""
    saved = sum(name.startswith(_RANDOM_STATE) and name.endswith(".cpu") for name in names)
    if saved != processes.count():
        command = processes.command_to_resume(checkpoint.parents[1], saved)
        raise InputError(
            f"{checkpoint} was saved by {saved} processes, there are {processes.count()} now; use: {command}"
        )


def _numbers_in(checkpoint: Path) -> set[str]:
    """The weights of a checkpoint that have shape ()."""
    with safe_open(checkpoint / _MODEL, "pt") as file:
        return {name for name in file.keys() if not file.get_slice(name).get_shape()}  # noqa: SIM118


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory under the names of the parameters: `exp_avg of encoder.0…`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{key} of {names[parameter]}": torch.as_tensor(value)
        for parameter, memory in optimizer.state.items()
        for key, value in memory.items()
    }


def _restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], numbers: Collection[str]
) -> None:
    """Give an optimiser its memory back; `numbers` are the parameters that were saved with shape ()."""
    parameters = dict(model.named_parameters())
    # A fused optimiser counts its steps where the parameter lies, any other on the CPU.
    fused = {parameter for group in optimizer.param_groups if group.get("fused") for parameter in group["params"]}
    optimizer.state.clear()
    for label, tensor in tensors.items():
        key, _, name = label.partition(" of ")
        parameter = parameters[name]
        # Earlier versions had a g of shape (), and its memory with it.
        memory = tensor.reshape(parameter.shape) if name in numbers and key != "step" else tensor
        stays = key == "step" and parameter not in fused
        optimizer.state[parameter][key] = memory if stays else memory.to(parameter.device)
