from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from qknorm import QKNormAttention, parameter_groups
from qknorm.errors import InputError
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


def saved(folder: Path) -> tuple[Checkpoints, nn.Linear]:
    """Three checkpoints, with weights of 1, 2 and 3 and the best the first, and the model."""
    checkpoints, model = Checkpoints(folder), nn.Linear(1, 1, bias=False)
    for step in (1, 2, 3):
        nn.init.constant_(model.weight, step)
        path = checkpoints.save(step, model, torch.optim.Adam(model.parameters()), {"score": step})
        if step == 1:
            checkpoints.mark_best(path)
    return checkpoints, model


def test_a_model_that_has_lost_its_optimiser_is_used_and_not_trained_on(tmp_path: Path) -> None:
    checkpoints, model = saved(tmp_path)
    for file in tmp_path.glob("*/optimizer.safetensors"):
        file.unlink()
    assert checkpoints.load_best(model) == tmp_path / "step-000001"
    assert model.weight.item() == checkpoints.best_score() == 1.0
    with (
        pytest.warns(UserWarning, match="is damaged or incomplete"),
        pytest.raises(InputError, match=r"cannot be trained on: its checkpoints have no whole optimizer\.safetensors"),
    ):
        checkpoints.newest()


def test_where_the_best_model_is_damaged_the_newest_is_used(tmp_path: Path) -> None:
    checkpoints, model = saved(tmp_path)
    for name in ("step-000001", "step-000003"):
        file = tmp_path / name / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="damaged") as told:
        assert checkpoints.load_best(model) == tmp_path / "step-000002"
    assert [str(warning.message).removeprefix(f"{tmp_path}/") for warning in told] == [
        "step-000001, the best checkpoint, is damaged; the newest whole one is used",
        "step-000003 is damaged or incomplete; step-000002 is used in its place",
    ]
    assert model.weight.item() == 2.0


def test_the_best_of_a_run_under_way_may_be_replaced_while_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoints, model), state = saved(tmp_path), module._state

    def state_of_one_that_has_gone(checkpoint: Path) -> dict[str, Any]:
        if checkpoint.name == "step-000001":
            checkpoints.mark_best(tmp_path / "step-000002")
            checkpoints.remove_all_but([2])
        return state(checkpoint)

    monkeypatch.setattr(module, "_state", state_of_one_that_has_gone)
    assert checkpoints.load_best(model) == tmp_path / "step-000002"


def test_a_step_that_is_saved_again_replaces_the_former_one_and_a_colleague_may_read_it(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    checkpoints, umask = Checkpoints(tmp_path / "run"), os.umask(0o027)
    try:
        for value in (1.0, 2.0):
            nn.init.constant_(model.weight, value)
            saved = checkpoints.save(5, model, optimizer, {})
    finally:
        os.umask(umask)
    assert load_file(saved / "model.safetensors")["weight"].unique().tolist() == [2.0]
    assert [path.name for path in saved.parent.iterdir() if path.is_dir()] == [saved.name]
    assert stat.S_IMODE(saved.stat().st_mode) == 0o750
    assert {stat.S_IMODE(path.stat().st_mode) for path in saved.iterdir()} == {0o640}


def test_a_mean_is_that_of_the_checkpoints_which_have_a_tensor(tmp_path: Path) -> None:
    """A run that was begun by an earlier version has checkpoints with fewer tensors than those that come after them."""
    checkpoints, _ = saved(tmp_path)
    other = nn.Linear(1, 1)
    checkpoints.save(4, other, torch.optim.Adam(other.parameters()), {})
    mean = checkpoints.average([4, 3])
    assert torch.equal(mean["bias"], other.bias)
    torch.testing.assert_close(mean["weight"], (other.weight + 3) / 2)
