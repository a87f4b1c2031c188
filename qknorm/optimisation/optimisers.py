"""Optimisers by the names that recipes know them by.

A new one is a function of the same shape and its line in the table. What it remembers of a parameter must be tensors in
its `state`, as torch's own optimisers have it: checkpoints save those, and a resumed run goes on exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from qknorm.attention.module import parameter_groups
from qknorm.optimisation.muon import Muon, with_matrices_apart

_BETA1 = 0.9


class OptimiserSettings(Protocol):
    """The keys of a recipe that are about its optimiser."""

    @property
    def optimizer(self) -> str: ...

    @property
    def beta2(self) -> float: ...

    @property
    def weight_decay(self) -> float: ...

    @property
    def precision(self) -> str: ...


Optimiser = Callable[[nn.Module, OptimiserSettings], torch.optim.Optimizer]
"""Makes the optimiser of a model; the trainer sets the learning rate of its groups before every update."""


def adam(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Adam (Kingma and Ba 2015): a weight decay is part of the gradient."""
    groups = parameter_groups(model, settings.weight_decay)
    return torch.optim.Adam(groups, lr=0.0, betas=(_BETA1, settings.beta2), fused=True)


def adamw(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019): a weight decay shrinks the weights themselves."""
    groups = parameter_groups(model, settings.weight_decay)
    return torch.optim.AdamW(groups, lr=0.0, betas=(_BETA1, settings.beta2), fused=True)


def muon(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Muon (Jordan et al. 2024) for the weights of linear layers, AdamW for all others."""
    groups = with_matrices_apart(parameter_groups(model, settings.weight_decay), model)
    return Muon(groups, (_BETA1, settings.beta2), half=settings.precision == "bf16")


OPTIMISERS: dict[str, Optimiser] = {"adam": adam, "adamw": adamw, "muon": muon}


def make_optimiser(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """The optimiser of a model as its recipe has it."""
    return OPTIMISERS[settings.optimizer](model, settings)
