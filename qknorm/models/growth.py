"""The weights of a translator as those of a larger one, which says the same and has more to learn with.

Heads are added and stay as wide as they are. Further layers lie below the last one and begin as identity. Whatever
reads a new dimension, a new head or a new hidden unit begins at random; whatever writes there, with zeros. Only a wider
model with LayerNorm and FixNorm says something else, by about 0.001 of a log-probability: a vector whose length stays
cannot keep its mean, and the last norm's weights, which differ from one dimension to the next, see it.

For norms before each sublayer: one after a sum has no identity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from qknorm.models.layers import widened
from qknorm.models.translator import TranslatorModel

_LAYER = re.compile(r"((?:en|de)coder)\.(\d+)\.")
_NORMS, _WRITERS = ("norm", "encoder_norm", "decoder_norm"), ("out_proj", "outer")
_SQUARES = "exp_avg_sq"


@torch.no_grad()
def grown(weights: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """Weights as a model of fresh ones takes them, which may be larger than the model that they are of."""
    fresh = model.state_dict()
    if not isinstance(model, TranslatorModel) or not _can_grow(weights, fresh, model):
        return weights
    origins, growth = _origins(fresh, weights), _Growth(model, weights["languages"].shape[1])
    return {name: growth.tensor(name, weights.get(origins[name]), start) for name, start in fresh.items()}


def grown_memory(tensors: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """An optimiser's memory, `exp_avg of encoder.0…`, likewise: with nothing for what is new.

    Only of squared gradients it has the mean of the others, or Adam would begin with steps that are far too large.
    """
    parameters = dict(model.named_parameters())
    names = {label.partition(" of ")[2] for label in tensors}
    places = {origin: name for name, origin in _origins(parameters, names).items()}
    return {
        f"{key} of {places[name]}": _remembered(key, tensor, parameters[places[name]])
        for label, tensor in tensors.items()
        for key, _, name in [label.partition(" of ")]
    }


def _remembered(key: str, tensor: Tensor, parameter: Tensor) -> Tensor:
    if tensor.dim() != parameter.dim() or tensor.shape == parameter.shape:
        return tensor
    usual = tensor.mean() if key == _SQUARES else tensor.new_zeros(())
    return _placed(tensor, usual.expand(parameter.shape))


def _can_grow(weights: Mapping[str, Tensor], fresh: Mapping[str, Tensor], model: TranslatorModel) -> bool:
    """Whether there are more of the same; positions must be as wide as they were when they were learned with."""
    pairs = [(weights[origin], fresh[name]) for name, origin in _origins(fresh, weights).items() if origin in weights]
    if "languages" not in weights or len(pairs) < len(weights) or not all(_is_within(*pair) for pair in pairs):
        return False
    return (model.config.position_dim or model.config.dim) <= weights["languages"].shape[1]


def _is_within(old: Tensor, new: Tensor) -> bool:
    """Or a number, as g was once."""
    is_number = old.dim() == 0
    return is_number or (old.dim() == new.dim() and all(map(int.__le__, old.shape, new.shape)))


def _origins(names: Iterable[str], before: Iterable[str]) -> dict[str, str]:
    """What each tensor was called in a smaller model: the last layer stays the last. New layers were not there."""
    now, then = _layers(names), _layers(before)

    def before_it(match: re.Match[str]) -> str:
        stack, number = match[1], int(match[2])
        new, old = now[stack], then.get(stack, 0)
        if number == new - 1:
            return f"{stack}.{old - 1}."
        return match[0] if number < old - 1 else "new."

    return {name: _LAYER.sub(before_it, name) for name in names}


def _layers(names: Iterable[str]) -> dict[str, int]:
    """How many layers each stack has."""
    numbers: dict[str, int] = {}
    for match in filter(None, map(_LAYER.match, names)):
        numbers[match[1]] = max(numbers.get(match[1], 0), int(match[2]) + 1)
    return numbers


class _Growth:
    """From one width to another. The sums that norms divide by their length are longer by a factor."""

    def __init__(self, model: TranslatorModel, width: int) -> None:
        self.config, self.factor = model.config, math.sqrt(model.config.dim / width)

    def tensor(self, name: str, old: Tensor | None, fresh: Tensor) -> Tensor:
        """What a weight begins as: all of the old one, if there is one, in its corner."""
        module, parameter = name.split(".")[-2:] if "." in name else ("", name)
        if module in _WRITERS:
            return torch.zeros_like(fresh) if old is None else self._written(old, fresh)
        if old is None:
            return fresh
        if module in _NORMS and parameter == "weight":
            return _placed(old / self.factor, fresh)
        if name == "embedding.weight":
            return _placed(self._wide(old), fresh)
        return _placed(self._wide(old) * self.factor if name == "languages" else old, fresh)

    def _written(self, old: Tensor, fresh: Tensor) -> Tensor:
        """Nothing of new heads or hidden units, and nothing to new dimensions."""
        wide = self._wide(old.movedim(0, -1)).movedim(-1, 0)
        return _placed(wide * self.factor, torch.zeros_like(fresh))

    def _wide(self, vectors: Tensor) -> Tensor:
        return widened(vectors, self.config.dim, self.config.norm, self.config.fix_norm)


def _placed(tensor: Tensor, into: Tensor) -> Tensor:
    result = into.clone()
    result[tuple(slice(size) for size in tensor.shape)] = tensor.to(into.device)
    return result
