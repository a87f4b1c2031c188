"""What a model's attention looks like during training: how sharp, how spread out, how close to its bound."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from qknorm.attention.graft import GraftedNorm, query_norm
from qknorm.attention.observed import Attended, arguments, evaluating, observing
from qknorm.errors import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SATURATED = 0.99
_SHOWN = {
    "g": "g",
    "bound": "largest possible logit",
    "largest_logit": "largest logit",
    "entropy": "entropy / its maximum",
    "saturated": "rows with a weight > 0.99",
    "q_norm": "mean norm of queries",
    "k_norm": "mean norm of keys",
}

Diagnosis: TypeAlias = dict[str, Any]
"""The numbers of one layer, each a list with one per head, or None where there is not such a number."""


class Writer(Protocol):
    """TensorBoard's SummaryWriter, or anything with this method."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


class Look(NamedTuple):
    """What was seen in one call of the model, by the names of its layers."""

    step: int
    layers: dict[str, Diagnosis]


class Watch:
    """Looks at a model's attention once in `every` calls inside a `with` block; made by `watch`."""

    def __init__(self, model: nn.Module, every: int = 100, writer: Writer | None = None) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 call, not {every}")
        self.model, self.every, self.writer = model, every, writer
        self.calls, self.looks = 0, list[Look]()
        self._hooks, self._looking = ExitStack(), ExitStack()

    def __enter__(self) -> Watch:
        for hook in (
            self.model.register_forward_pre_hook(torch.compiler.disable(self._begin)),
            # First of the hooks at the end, as it is last of those at the beginning: looks of several watches nest.
            self.model.register_forward_hook(torch.compiler.disable(self._end), prepend=True, always_call=True),
        ):
            self._hooks.callback(hook.remove)
        return self

    def __exit__(self, *_error: object) -> None:
        self._looking.close()
        self._hooks.close()

    def rows(self) -> list[dict[str, Any]]:
        """Return everything seen: a row per look, layer and head, with `step`, `layer`, `head` and the numbers."""
        return [
            {"step": look.step, "layer": name, "head": head} | _of_head(numbers, head)
            for look in self.looks
            for name, numbers in look.layers.items()
            for head in range(len(numbers["entropy"]))
        ]

    def table(self) -> str:
        """Return the last look as text, a line per layer and head."""
        rows = [row for row in self.rows() if row["step"] == self.looks[-1].step]
        heading = ["layer", "head", *_SHOWN]
        cells = [heading, *([_cell(row[name]) for name in heading] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in cells
        )
        return "\n".join(lines)

    def plot(self) -> Figure:
        """Draw a matplotlib figure: each number over the steps, a line per layer with its mean over heads."""
        with needs("toolkit", "plot"):
            from matplotlib.figure import Figure

        figure = Figure(figsize=(12, 6), layout="constrained")
        for axis, (quantity, title) in zip(figure.subplots(2, 4).flat, _SHOWN.items(), strict=False):
            axis.set(title=title, xlabel="step")
            for name, points in self._curves(quantity).items():
                axis.plot(*zip(*points, strict=True), marker=".", label=name)
        handles, labels = figure.axes[3].get_legend_handles_labels()
        figure.axes[-1].axis("off")
        figure.axes[-1].legend(handles, labels, loc="center", frameon=False)
        return figure

    def _curves(self, quantity: str) -> dict[str, list[tuple[int, float]]]:
        curves: dict[str, list[tuple[int, float]]] = {}
        for look in self.looks:
            for name, numbers in look.layers.items():
                if numbers[quantity] is not None:
                    curves.setdefault(name, []).append((look.step, fmean(numbers[quantity])))
        return curves

    def _begin(self, _model: nn.Module, _inputs: Any) -> None:
        if self.calls % self.every == 0:
            look = Look(self.calls, {})
            self._looking.callback(self._finish, look)
            self._looking.enter_context(observing(self.model, _Recorder(look.layers)))
        self.calls += 1

    def _end(self, _model: nn.Module, _inputs: Any, output: Any) -> None:
        began = len(self.looks)
        self._looking.close()
        if output is not None and any(not look.layers for look in self.looks[began:]):  # None: the call has failed
            warnings.warn(
                f"watch saw no attention in a call of {type(self.model).__name__}: it knows QKNormAttention, qknorm's "
                "MultiheadAttention with a norm and layers of transformers, and leaves out single decoding steps",
                stacklevel=2,
            )

    def _finish(self, look: Look) -> None:
        self.looks.append(look)
        if self.writer is not None:
            for name, numbers in look.layers.items():
                for quantity in _SHOWN:
                    if numbers[quantity] is not None:
                        self.writer.add_scalar(f"{quantity}/{name}", fmean(numbers[quantity]), look.step)


def watch(model: nn.Module, every: int = 100, writer: Writer | None = None) -> Watch:
    """Look at a model's attention in one of `every` calls: `with watch(model) as w`, then `w.table()`, `w.plot()`.

    The first call is included, and has step 0. Layers are this library's, and those of transformers. writer: a
    TensorBoard SummaryWriter, to which the means over heads are written as they come. Per layer and head:

    g: what multiplies q̂·k̂, at its largest where it grows with the length; with other norms than Lp, or none, softmax
    scale · mean ‖q‖ · mean ‖k‖ in the softmax, which for p = 2 is the same. bound: g · d^max(0, 1 − 2/p), which no
    logit of Lp-normalised queries and keys exceeds; None without such. largest_logit: in absolute value, where a query
    may look. entropy: of the weights, relative to that of equal weights, mean over the rows. saturated: the share of
    rows whose largest weight is above 0.99. Both leave out rows with one key to choose. q_norm, k_norm: mean L2 norms
    of what the projections give, before any norm. A call in which no attention is seen
    gives a warning.
    """
    return Watch(model, every, writer)


def diagnose(model: nn.Module, batch: Any) -> list[Diagnosis]:
    """Return what `watch` sees in one call of a model in eval mode: an entry per layer, in calling order."""
    layers: dict[str, Diagnosis] = {}
    positional, named = arguments(batch)
    with evaluating(model), observing(model, _Recorder(layers)):
        model(*positional, **named)
    return list(layers.values())


class _Recorder:
    """Writes down the numbers of each layer that it is shown; if one is called again, the last ones."""

    def __init__(self, layers: dict[str, Diagnosis]) -> None:
        self.layers = layers

    def __call__(self, name: str, layer: nn.Module, seen: Attended) -> None:
        self.layers[name] = _sharpness(layer, seen) | _spread(seen) | _norms(seen)


def _sharpness(layer: nn.Module, seen: Attended) -> Diagnosis:
    """g and bound."""
    heads, norm = seen.query.shape[1], query_norm(layer)
    g = getattr(norm, "g", getattr(norm, "scale", None))
    if not hasattr(norm, "p") or g is None or (isinstance(norm, GraftedNorm) and norm.strength < 1):
        queries, visible = seen.lengths(seen.query).mean((0, 2)), seen.visible_keys()
        keys = (seen.lengths(seen.key) * visible).sum((0, 2)) / visible.sum((0, 2))
        return {"g": (queries * keys * seen.scale).tolist(), "bound": None}
    if (scaling := getattr(layer, "length_scaling", None)) is not None:
        g = g * seen.length_factor(scaling)
    bound = g.abs() * seen.query.shape[-1] ** max(1 - 2 / norm.p, 0.0)
    return {"g": g.expand(heads).tolist(), "bound": bound.expand(heads).tolist()}


def _spread(seen: Attended) -> Diagnosis:
    """Entropy, share of saturated rows, largest logit."""
    entropy, saturated, counted, largest = torch.zeros(4, seen.query.shape[1], device=seen.query.device)
    for rows in seen.rows():
        weights, choices = rows.weights(), rows.visible.sum(-1)
        has_choice = choices > 1
        entropy += (normalized_entropy(weights, choices) * has_choice).sum((0, 2))
        saturated += ((weights.amax(-1) > _SATURATED) & has_choice).sum((0, 2))
        counted += has_choice.sum((0, 2))
        largest = torch.maximum(largest, rows.logits.masked_fill(~rows.visible, 0.0).abs().amax((0, 2, 3)))
    shares = {"entropy": entropy / counted, "saturated": saturated / counted, "largest_logit": largest}
    return {name: share.tolist() for name, share in shares.items()}


def normalized_entropy(weights: Tensor, choices: Tensor | int) -> Tensor:
    """Of rows of weights, each over this many keys: 0 where one key has all of it, 1 where all are alike."""
    entropy: Tensor = torch.special.entr(weights).sum(-1)
    return entropy / torch.as_tensor(choices).clamp_min(2).log()


def _norms(seen: Attended) -> Diagnosis:
    queries, keys = (seen.lengths(side).mean((0, 2)).tolist() for side in seen.projected)
    return {"q_norm": queries, "k_norm": keys}


def _of_head(numbers: Diagnosis, head: int) -> dict[str, Any]:
    return {name: None if heads is None else heads[head] for name, heads in numbers.items()}


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
