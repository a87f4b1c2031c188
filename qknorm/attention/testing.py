"""What a test can ask of a model: whether its attention is normalised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from qknorm.attention.observed import arguments, evaluating

__all__ = ["assert_normalized"]

_SEPARATE = (("q_proj", "k_proj"), ("query", "key"), ("to_q", "to_k"), ("q", "k"))
_TORCHS_SEPARATE = {"q_proj_weight", "k_proj_weight"}  # of nn.MultiheadAttention with a kdim or vdim
_FACTORS = (4.0, 0.25)  # powers of two scale without rounding; smaller shows what larger hides in saturated attention


def assert_normalized(model: nn.Module, batch: Any, *, tolerance: float = 0.01) -> None:
    """Scale W_q and W_k, with their biases, of one attention layer after another, and fail if its output moves.

    batch: the model's input; a mapping holds arguments by name, a tuple or list in order. An output moves if an entry
    changes by more than `tolerance` of the largest; the eps of a norm moves it less.
    Layers are modules with a q_proj and a k_proj, or another common pair of names, or torch's in_proj_weight, or its
    q_proj_weight and k_proj_weight. The model runs in eval mode, with other tensors in place of its parameters, which
    never change.
    """
    layers = _layers(model)
    with evaluating(model):
        trials = [_Trial(model, name, layer, batch) for name, layer in layers.items()]
        moved = {trial.title: _largest(trial.movement(factor, factor) for factor in _FACTORS) for trial in trials}
        silent = [trial.title for trial in trials if trial.is_silent]
        still = [trial for trial in trials if moved[trial.title] <= tolerance]
        blind = [trial.title for trial in still if trial.movement(-1.0, 1.0) <= tolerance]
    if failed := [f"{title} (by {share:.0%})" for title, share in moved.items() if not share <= tolerance]:
        raise AssertionError(
            f"{len(failed)} of {len(layers)} attention layers are not normalised: scaling W_q and W_k moves the output "
            f"of {', '.join(failed)}"
        )
    if silent:
        raise ValueError(
            f"nothing is proved about {', '.join(silent)}: its output is all zeros or empty, as with an out_proj that "
            "starts at zero; draw its weights first"
        )
    if blind:
        raise ValueError(
            f"the batch proves nothing about {', '.join(blind)}: the output is the same for opposite queries; "
            "give sequences of several different positions"
        )


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every attention layer by its name; it is an error if there is none, or one that cannot be tried."""
    layers = {name: layer for name, layer in model.named_modules() if _rows(layer)}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.MultiheadAttention) and name not in layers:
            reason = "its queries and keys are not made by parameters of torch's names"
            raise ValueError(f"{_title(name)} cannot be tried: {reason}")
    if not layers:
        raise ValueError("the model has no attention layer: no module has a q_proj and a k_proj, or an in_proj_weight")
    return layers


class _Trial:
    """One attention layer of a model, and how far its output moves when its queries and keys are multiplied."""

    def __init__(self, model: nn.Module, name: str, layer: nn.Module, batch: Any) -> None:
        self.model, self.name, self.layer, self.batch = model, name, layer, batch
        self.title = _title(name)
        self.outputs = self._run({})
        if not self.outputs:
            raise ValueError(f"the batch does not reach {self.title}")

    def movement(self, queries: float, keys: float) -> float:
        """The largest change, relative to the largest number; NaN where the output becomes NaN."""
        prefix = f"{self.name}." if self.name else ""
        outputs = self._run({prefix + name: tensor for name, tensor in _scaled(self.layer, queries, keys).items()})
        return _largest(_change(old, new) for old, new in zip(self.outputs, outputs, strict=True))

    @property
    def is_silent(self) -> bool:
        """Whether nothing comes out, whatever the queries and keys."""
        return not any(output.any() for output in self.outputs)

    def _run(self, parameters: dict[str, Tensor]) -> list[Tensor]:
        """What the layer answers, call by call, in a model with these parameters in place of its own."""
        outputs: list[Tensor] = []

        def keep(_layer: nn.Module, _inputs: Any, output: Any) -> None:
            outputs.append((output[0] if isinstance(output, tuple) else output).double())

        hook = self.layer.register_forward_hook(keep)
        try:
            torch.func.functional_call(self.model, parameters, *arguments(self.batch))
        finally:
            hook.remove()
        return outputs


def _title(name: str) -> str:
    return name or "the model itself"


def _change(old: Tensor, new: Tensor) -> float:
    """The largest change of an entry, relative to the largest entry; 0 where nothing changes, even if all is zero."""
    if torch.equal(old, new):
        return 0.0
    return float((new - old).abs().max() / old.abs().max())


def _largest(numbers: Iterable[float]) -> float:
    """The largest number, or NaN if there is one; Python's max would pass over it."""
    return float(torch.tensor([*numbers], dtype=torch.float64).max())


def _scaled(layer: nn.Module, queries: float, keys: float) -> dict[str, Tensor]:
    """The parameters that make queries and keys, multiplied."""
    parameters, scaled = dict(layer.named_parameters()), {}
    for name, (of_queries, of_keys) in _rows(layer).items():
        parts = parameters[name].split([of_queries, of_keys, len(parameters[name]) - of_queries - of_keys])
        scaled[name] = torch.cat([parts[0] * queries, parts[1] * keys, parts[2]])
    return scaled


def _rows(layer: nn.Module) -> dict[str, tuple[int, int]]:
    """Of each parameter that makes queries or keys: how many rows make queries, and how many after them keys."""
    rows = {name: len(parameter) for name, parameter in layer.named_parameters() if parameter.dim()}
    for query, key in _SEPARATE:
        if f"{query}.weight" in rows and f"{key}.weight" in rows:
            queries = {name: (rows[name], 0) for name in _of(query, rows)}
            return queries | {name: (0, rows[name]) for name in _of(key, rows)}
    if rows.keys() >= _TORCHS_SEPARATE:
        of_queries, of_keys = rows["q_proj_weight"], rows["k_proj_weight"]
        biases = {"in_proj_bias": (of_queries, of_keys)} if "in_proj_bias" in rows else {}
        return {"q_proj_weight": (of_queries, 0), "k_proj_weight": (0, of_keys)} | biases
    third = rows.get("in_proj_weight", 0) // 3
    return {name: (third, third) for name in ("in_proj_weight", "in_proj_bias") if third and name in rows}


def _of(projection: str, names: Iterable[str]) -> list[str]:
    return [name for name in (f"{projection}.weight", f"{projection}.bias") if name in names]
