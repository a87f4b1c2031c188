from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from qknorm import parameter_groups
from qknorm.attention.norms import LpKind
from qknorm.models.gpt import GPT, GPTConfig


def tiny(**changes: Any) -> GPT:
    settings = {"context": 16, "layers": 2, "heads": 2, "dim": 16, "dropout": 0.0} | changes
    return GPT(GPTConfig(11, **settings)).eval()


KINDS = [{"qk_norm": None}, {"qk_norm": LpKind(1.0)}, {"qk_norm": LpKind(3.0, per_head_scale=True)}, {"qk_norm": "rms"}]


@pytest.mark.parametrize("changes", KINDS)
def test_steps_with_a_cache_give_what_reading_all_at_once_gives(changes: dict[str, Any]) -> None:
    model, characters = tiny(**changes), torch.randint(11, (2, 16))
    with torch.no_grad():
        caches = model.start()
        parts = [model.step(part, caches) for part in characters.split([5, 1, 1, 9], dim=1)]
        for part, end in zip(parts, (5, 6, 7, 16), strict=True):
            torch.testing.assert_close(part, model.step(characters[:, :end], model.start()), atol=1e-5, rtol=1e-4)


def test_the_loss_is_that_of_the_steps() -> None:
    model, characters = tiny(qk_norm=LpKind(3.0)), torch.randint(11, (2, 9))
    with torch.no_grad():
        steps = [model.step(characters[:, : i + 1], model.start()).log_softmax(-1) for i in range(8)]
        chosen = [step.gather(1, characters[:, i + 1 : i + 2]) for i, step in enumerate(steps)]
        loss = model(characters[:, :-1], characters[:, 1:])
    assert loss.item() == pytest.approx(-torch.stack(chosen).mean().item(), abs=1e-5)


def test_a_fresh_model_knows_nothing() -> None:
    model = tiny()
    assert model(torch.randint(11, (8, 16)), torch.randint(11, (8, 16))).item() == pytest.approx(math.log(11), abs=0.05)


def test_more_than_the_context_is_refused() -> None:
    model = tiny()
    with pytest.raises(ValueError, match="17 characters do not fit into a context of 16"):
        model(torch.zeros(1, 17, dtype=torch.long), torch.zeros(1, 17, dtype=torch.long))


def test_the_start_is_that_of_gpt_2() -> None:
    model = GPT(GPTConfig(65, context=64, layers=8, heads=4, dim=128, bias=True))
    block = next(model.attention_blocks())
    assert model.characters.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.attention.q_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.attention.out_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert block.outer.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    for linear in (block.attention.q_proj, block.attention.out_proj, block.inner, block.outer):
        assert not linear.bias.any()


def test_the_weights_do_not_depend_on_the_norm() -> None:
    """So that runs that differ in p alone start from the same point."""
    weights = []
    for changes in ({"qk_norm": None}, {"qk_norm": LpKind(1.0)}, {"qk_norm": LpKind(4.0)}):
        torch.manual_seed(3)
        model = tiny(**changes)
        weights.append([parameter for name, parameter in model.named_parameters() if "q_norm" not in name])
    for others in weights[1:]:
        assert all(torch.equal(a, b) for a, b in zip(weights[0], others, strict=True))


def test_weight_decay_reaches_matrices_only() -> None:
    model = tiny(bias=True, qk_norm=LpKind(per_head_scale=True))
    decayed, undecayed = (group["params"] for group in parameter_groups(model, 0.1))
    assert all(parameter.dim() == 2 for parameter in decayed)
    assert all(parameter.dim() < 2 for parameter in undecayed)
