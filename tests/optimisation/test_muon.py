"""Muon: what a step does to matrices, what it leaves to Adam, and that it can be resumed."""

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


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


def groups_of(model: nn.Module, weight_decay: float = 0.0) -> list[Group]:
    return with_matrices_apart([{"params": list(model.parameters()), "weight_decay": weight_decay}], model)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, updates: int) -> None:
    for seed in range(updates):
        numbers = torch.randint(11, (32,), generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        torch.autograd.backward(model(numbers).square().sub(1).abs().mean())
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        optimizer.step()


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (3, 5, 7)])
@pytest.mark.parametrize("half", [False, True])
def test_singular_values_come_close_to_one_and_directions_stay(shape: tuple[int, ...], half: bool) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    x = u @ torch.diag_embed(torch.linspace(0.3, 1, s.shape[-1]).expand(s.shape)) @ v
    values = torch.linalg.svdvals(orthogonal(x, half).float())
    assert values.min() > 0.6
    assert values.max() < 1.3
    inside = u.mT @ orthogonal(x, half).float() @ v.mT  # diagonal where only singular values have changed
    assert (inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))).abs().max() < (0.1 if half else 1e-4)


def test_a_gradient_of_zeros_moves_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def test_the_length_of_a_gradient_does_not_count(model: Net) -> None:
    other = copy.deepcopy(model)
    for scaled, factor in ((model, 1.0), (other, 1000.0)):
        optimizer = Muon(groups_of(scaled))
        optimizer.param_groups[1]["lr"] = 0.01
        torch.manual_seed(2)
        for parameter in scaled.parameters():
            parameter.grad = torch.randn_like(parameter) * factor
        optimizer.step()
    assert torch.allclose(model.inner.weight, other.inner.weight, atol=1e-6)


def test_only_weights_of_linear_layers_are_matrices(model: Net) -> None:
    by_matrices = {group["matrices"]: group["params"] for group in groups_of(model)}
    assert {id(weight) for weight in by_matrices[True]} == {id(model.inner.weight), id(model.outer.weight)}
    assert sum(map(len, by_matrices.values())) == len(list(model.parameters()))


def test_all_others_move_as_with_adam(model: Net) -> None:
    twin = copy.deepcopy(model)
    gradients = [torch.randn_like(parameter) for parameter in model.parameters()]
    for moved, optimizer in ((model, Muon(groups_of(model))), (twin, torch.optim.Adam(twin.parameters(), lr=0.01))):
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    assert torch.allclose(model.vectors.weight, twin.vectors.weight, atol=1e-7)
    assert torch.allclose(model.inner.bias, twin.inner.bias, atol=1e-7)
    assert not torch.allclose(model.inner.weight, twin.inner.weight, atol=1e-3)


def test_gradients_of_a_closure_move_matrices_in_the_same_step(model: Net) -> None:
    twin, numbers = copy.deepcopy(model), torch.arange(11)
    optimizer, of_twin = Muon(groups_of(model)), Muon(groups_of(twin))
    for group in (*optimizer.param_groups, *of_twin.param_groups):
        group["lr"] = 0.01

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(numbers).square().sum()
        torch.autograd.backward(loss)
        value: float = loss.item()
        return value

    torch.autograd.backward(twin(numbers).square().sum())
    of_twin.step()
    before = model(numbers).square().sum().item()
    assert optimizer.step(closure) == before
    assert all(torch.equal(first, second) for first, second in zip(model.parameters(), twin.parameters(), strict=True))


def test_weight_decay_shrinks_a_matrix_without_a_gradient_of_its_own() -> None:
    linear = nn.Linear(3, 3, bias=False)
    before = linear.weight.detach().clone()
    linear.weight.grad = torch.zeros(3, 3)
    optimizer = Muon(groups_of(linear, weight_decay=0.5))
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert torch.allclose(linear.weight, before * (1 - 0.1 * 0.5))


def test_a_restored_state_goes_on_to_the_same_bits(model: Net) -> None:
    optimizer = Muon(groups_of(model))
    learn(model, optimizer, 3)
    twin = copy.deepcopy(model)
    names: dict[Tensor, Tensor] = dict(zip(model.parameters(), twin.parameters(), strict=True))
    restored = Muon(groups_of(twin))
    for parameter, state in optimizer.state.items():
        restored.state[names[parameter]] = {key: _copy(value) for key, value in state.items()}
    learn(model, optimizer, 2)
    learn(twin, restored, 2)
    assert all(torch.equal(first, second) for first, second in zip(model.parameters(), twin.parameters(), strict=True))


def _copy(value: Tensor | float) -> Tensor | float:
    return value.clone() if isinstance(value, Tensor) else value
