"""Muon (Jordan et al. 2024): a matrix moves by its momentum made orthogonal, everything else by Adam.

Directions that gradients seldom show are then moved as far as those that they show at every update, so that fewer
updates are needed. Making a matrix orthogonal takes as long as some hundred positions of a batch, so batches should be
large.

torch.optim.Muon takes one matrix after another, always in bfloat16, which many CPUs are slow at, and refuses all that
is not a matrix. Here those of one shape are multiplied together, in four steps instead of five, and Adam has the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from qknorm.ops.products import product

Group = dict[str, Any]

_MOMENTUM = 0.95
_MOVE = 0.4  # the root mean square of a matrix's move, in learning rates; Adam's is between 0.2 and 0.4 in practice
_STEPS = 4
# Of a polynomial of fifth degree, odd, that brings singular values between 0.05 and 1 close to 1 in few steps.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_SMALLEST_NORM = 1e-7


class Muon(torch.optim.Adam):
    """Adam for all groups but those with `matrices`, whose parameters move by orthogonal steps.

    half: whether steps are computed in bfloat16, which is exact enough, and faster where a processor has its products.
    """

    def __init__(self, groups: Iterable[Group], betas: tuple[float, float] = (0.9, 0.999), half: bool = False) -> None:
        super().__init__(
            [{"matrices": False, **group} for group in groups],
            lr=0.0,
            betas=betas,
            fused=True,
            decoupled_weight_decay=True,
        )
        self.half = half
        self._step_supports_amp_scaling = False  # a GradScaler then leaves out steps by itself, for matrices too

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        everything = self.param_groups
        self.param_groups = [group for group in everything if not group["matrices"]]
        try:
            loss: float | None = super().step(closure)  # first: a closure computes the gradients of all groups
        finally:
            self.param_groups = everything
        for group in everything:
            if group["matrices"]:
                self._move_matrices(group)
        return loss

    def _move_matrices(self, group: Group) -> None:
        for shape, parameters in _by_shape(group["params"]).items():
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            momenta = [self._momentum(parameter) for parameter in parameters]
            torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)
            ahead = torch._foreach_lerp(gradients, momenta, _MOMENTUM)  # Nesterov's
            moves = orthogonal(torch.stack(ahead), self.half)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            # An orthogonal matrix has a root mean square of 1/√(its longer side).
            torch._foreach_add_(parameters, moves.unbind(), alpha=-group["lr"] * _MOVE * max(shape) ** 0.5)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"]
        return momentum


def with_matrices_apart(groups: Iterable[Group], model: nn.Module) -> list[Group]:
    """The groups of an optimiser, with the weights of linear layers in groups of their own."""
    matrices = {module.weight for module in model.modules() if isinstance(module, nn.Linear)}
    parts = [
        {**group, "params": [weight for weight in group["params"] if (weight in matrices) == apart], "matrices": apart}
        for group in groups
        for apart in (False, True)
    ]
    return [part for part in parts if part["params"]]


def orthogonal(x: Tensor, half: bool = False) -> Tensor:
    """The matrices (…, rows, columns) with their singular values brought close to 1, by Newton–Schulz steps."""
    is_tall = x.shape[-2] > x.shape[-1]
    y = x.mT if is_tall else x
    y = y / y.norm(dim=(-2, -1), keepdim=True).clamp_min(_SMALLEST_NORM)
    y = y.bfloat16() if half else y
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        gram = product(y, y.mT)
        y = a * y + product(b * gram + c * product(gram, gram), y)
    result: Tensor = (y.mT if is_tall else y).to(x.dtype)
    return result


def _by_shape(parameters: Iterable[Tensor]) -> dict[torch.Size, list[Tensor]]:
    """Those that have a gradient; matrices of one shape are multiplied together."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            by_shape[parameter.shape].append(parameter)
    return by_shape
