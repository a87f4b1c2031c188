from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qknorm import lp_normalize, parameter_groups
from qknorm.models.learned_p import LearnedLpNorm, normalize
from tests.models.test_gpt import tiny


@pytest.mark.parametrize("p", [1.2, 2.0, 3.5])
def test_a_learned_p_is_normalised_like_a_given_one(p: float) -> None:
    x = torch.randn(2, 3, 5, 16)
    x[0, 0, 0] = 0
    torch.testing.assert_close(normalize(x, torch.tensor(p)), lp_normalize(x, p))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_the_gradient_of_a_learned_p_is_that_of_finite_differences(shape: tuple[int, ...]) -> None:
    scale = torch.full(shape, 5.0, dtype=torch.float64, requires_grad=True)
    norm = LearnedLpNorm(2.7, torch.nn.Parameter(scale.detach()), 3 if shape else None).double()
    x = torch.randn(2, 3, 4, 8, dtype=torch.float64, requires_grad=True)
    theta = norm.theta.detach().clone().requires_grad_()

    def outputs(x: torch.Tensor, theta: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.func.functional_call(norm, {"theta": theta, "scale": scale}, (x,))
        return result

    assert torch.autograd.gradcheck(outputs, (x, theta, scale))


def test_p_is_learned_by_queries_and_keys_together(tmp_path: Path) -> None:
    model = tiny(learned_p="layer", p=3.0)
    norm = next(model.attention_blocks()).attention.q_norm
    assert isinstance(norm, LearnedLpNorm)
    assert norm.p.item() == pytest.approx(3.0)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randint(11, (4, 16)), torch.randint(11, (4, 16))).backward()
        optimizer.step()
    assert norm.p.item() != pytest.approx(3.0, abs=1e-4)
    save_file(model.state_dict(), tmp_path / "model")  # it refuses a tensor under two names
    again = tiny(learned_p="layer", p=3.0)
    again.load_state_dict(load_file(tmp_path / "model"))
    characters = torch.randint(11, (1, 16))
    assert torch.equal(again(characters, characters), model(characters, characters))


def test_a_learned_p_must_start_above_1() -> None:
    with pytest.raises(ValueError, match="a learned p starts above 1"):
        tiny(learned_p="layer", p=1.0)


def test_weights_of_a_learned_p_from_before_g_had_a_dimension_load() -> None:
    model = tiny(learned_p="layer", p=3.0)
    old = {name: tensor.squeeze() if name.endswith(".scale") else tensor for name, tensor in model.state_dict().items()}
    assert any(name.endswith("q_norm.scale") and tensor.dim() == 0 for name, tensor in old.items())
    model.load_state_dict(old)
