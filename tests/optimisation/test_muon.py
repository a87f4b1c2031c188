"""Muon: what a step does to matrices, and what it leaves to Adam; that it can be resumed stands with the trainer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from qknorm.optimisation.muon import Group, Muon, orthogonal, with_matrices_apart


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, numbers: Tensor) -> Tensor:
        out: Tensor = self.norm(self.outer(self.inner(self.vectors(numbers)).relu()))
        return out


def groups_of(model: nn.Module) -> list[Group]:
    return with_matrices_apart([{"params": list(model.parameters()), "weight_decay": 0.0}], model)


def with_rate(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    return optimizer


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (3, 5, 7)])
@pytest.mark.parametrize("half", [False, True])
def test_singular_values_come_close_to_one_and_directions_stay(shape: tuple[int, ...], half: bool) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    x = u @ torch.diag_embed(torch.linspace(0.3, 1, s.shape[-1]).expand(s.shape)) @ v
    moves = orthogonal(x, half).float()
    values = torch.linalg.svdvals(moves)
    assert values.min() > 0.6
    assert values.max() < 1.3
    inside = u.mT @ moves @ v.mT  # diagonal where only singular values have changed
    assert (inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))).abs().max() < (0.1 if half else 1e-4)
    assert torch.allclose(orthogonal(1000 * x), orthogonal(x), atol=1e-5), "the length of a gradient does not count"
    assert torch.equal(orthogonal(torch.zeros(shape)), torch.zeros(shape))


def test_only_weights_of_linear_layers_are_matrices() -> None:
    model = Net()
    by_matrices = {group["matrices"]: group["params"] for group in groups_of(model)}
    assert {id(weight) for weight in by_matrices[True]} == {id(model.inner.weight), id(model.outer.weight)}
    assert sum(map(len, by_matrices.values())) == len(list(model.parameters()))


def test_all_others_move_as_with_adam() -> None:
    model = Net()
    twin = copy.deepcopy(model)
    gradients = [torch.randn_like(parameter) for parameter in model.parameters()]
    for moved, optimizer in ((model, Muon(groups_of(model))), (twin, torch.optim.Adam(twin.parameters()))):
        for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        with_rate(optimizer).step()
    assert torch.allclose(model.vectors.weight, twin.vectors.weight, atol=1e-7)
    assert torch.allclose(model.inner.bias, twin.inner.bias, atol=1e-7)
    assert not torch.allclose(model.inner.weight, twin.inner.weight, atol=1e-3)


def test_gradients_of_a_closure_move_matrices_in_the_same_step() -> None:
    model = Net()
    twin = copy.deepcopy(model)

    def backward(net: Net) -> float:
        net.zero_grad()
        loss = net(torch.arange(11)).square().sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    expected = backward(twin)
    with_rate(Muon(groups_of(twin))).step()
    assert with_rate(Muon(groups_of(model))).step(lambda: backward(model)) == expected
    assert all(torch.equal(first, second) for first, second in zip(model.parameters(), twin.parameters(), strict=True))
