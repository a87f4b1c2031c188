from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from qknorm import QKNormAttention, parameter_groups
from qknorm.runs import checkpoint as module
from qknorm.runs.checkpoint import Checkpoints


def updated(attention: QKNormAttention, optimizer: torch.optim.Optimizer) -> None:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    optimizer.zero_grad()
    attention(x).square().sum().backward()
    optimizer.step()


def attention_and_optimizer() -> tuple[QKNormAttention, torch.optim.Optimizer]:
    attention = QKNormAttention(16, 2)
    return attention, torch.optim.Adam(parameter_groups(attention, 0.0), lr=0.1, fused=True)


def test_a_run_from_before_g_had_a_dimension_goes_on(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    attention, optimizer = attention_and_optimizer()
    updated(attention, optimizer)
    saved = checkpoints.save(1, attention, optimizer, {})
    for name in ("model.safetensors", "optimizer.safetensors"):
        tensors = load_file(saved / name)
        older = {
            key: tensor.squeeze() if key.endswith("q_norm.scale") else tensor
            for key, tensor in tensors.items()
            if not key.endswith("_extra_state")
        }
        save_file(older, saved / name)
    module._write_state(saved, {"step": 1})
    again, its_optimizer = attention_and_optimizer()
    checkpoints.restore(saved, again, its_optimizer)
    for layer, its_own in ((attention, optimizer), (again, its_optimizer)):
        updated(layer, its_own)
    for (name, parameter), other in zip(again.named_parameters(), attention.parameters(), strict=True):
        assert torch.equal(parameter, other), name


def test_a_number_that_an_optimiser_keeps_stays_a_number(tmp_path: Path) -> None:
    """NAdam has one beside its count of steps, for a matrix as for a bias of one element."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.1)
    model(torch.ones(3, 4)).square().sum().backward()
    optimizer.step()
    expected = {name: dict(optimizer.state[weights]) for name, weights in model.named_parameters()}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.restore(checkpoints.save(1, model, optimizer, {}), model, optimizer)
    for name, weights in model.named_parameters():
        assert optimizer.state[weights].keys() == expected[name].keys()
        assert all(torch.equal(optimizer.state[weights][key], value) for key, value in expected[name].items())


@pytest.mark.parametrize("fused", [True, False])
def test_the_count_of_steps_lies_where_the_optimiser_wants_it(fused: bool) -> None:
    """A fused one on a GPU reads it there; the device without memory stands for a GPU."""
    model = nn.Linear(2, 1, bias=False, device="meta")
    optimizer = torch.optim.Adam([{"params": list(model.parameters()), "fused": fused}], lr=0.1)
    saved = {"step of weight": torch.tensor(3.0), "exp_avg of weight": torch.zeros(1, 2)}
    module._restore_optimizer(model, optimizer, saved, set())
    places = {key: value.device.type for key, value in optimizer.state[model.weight].items()}
    assert places == {"step": "meta" if fused else "cpu", "exp_avg": "meta"}


def test_a_step_that_is_saved_again_replaces_the_former_one(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    checkpoints = Checkpoints(tmp_path)
    for value in (1.0, 2.0):
        nn.init.constant_(model.weight, value)
        saved = checkpoints.save(5, model, optimizer, {})
    assert load_file(saved / "model.safetensors")["weight"].unique().tolist() == [2.0]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [saved.name]
