from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qknorm.optimisation.optimisers import OPTIMISERS, make_optimiser
from qknorm.runs.recipe import TrainingRecipe


def stepped(kind: str, gradient: float, weight_decay: float = 0.0) -> tuple[Tensor, Tensor]:
    """A matrix and a bias of ones after one update with this gradient everywhere and a learning rate of 0.1."""
    model = nn.Linear(3, 2)
    optimizer = make_optimiser(model, TrainingRecipe(optimizer=kind, beta2=0.99, weight_decay=weight_decay))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.full_like(parameter, gradient)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    return model.weight.detach(), model.bias.detach()


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_weights_move_against_the_gradient_and_a_decay_shrinks_matrices_alone(kind: str) -> None:
    for weights in stepped(kind, gradient=2.0):
        assert (weights < 1).all()
    matrix, bias = stepped(kind, gradient=0.0, weight_decay=0.5)
    assert (matrix < 1).all()
    assert (bias == 1).all()
    if kind != "adam":  # which makes a gradient of it
        torch.testing.assert_close(matrix, torch.full_like(matrix, 1 - 0.1 * 0.5))


def test_adams_first_update_is_the_learning_rate_whatever_the_gradient() -> None:
    for gradient in (1e-3, 1e3):
        matrix, _ = stepped("adam", gradient)
        torch.testing.assert_close(matrix, torch.full_like(matrix, 0.9))
