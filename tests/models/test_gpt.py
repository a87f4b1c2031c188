from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from qknorm.attention.norms import LpKind, QKNorm
from qknorm.models.gpt import GPT, GPTConfig


def tiny(qk_norm: QKNorm | None = "lp", **changes: Any) -> GPT:
    settings = {"context": 16, "layers": 2, "heads": 2, "dim": 16, "dropout": 0.0} | changes
    return GPT(GPTConfig(11, **settings, qk_norm=qk_norm)).eval()


@pytest.mark.parametrize("qk_norm", [None, LpKind(1.0), LpKind(3.0, per_head_scale=True), "rms"], ids=str)
def test_steps_with_a_cache_give_what_reading_all_at_once_gives(qk_norm: QKNorm | None) -> None:
    model, characters = tiny(qk_norm), torch.randint(11, (2, 17))
    with torch.no_grad():
        caches = model.start()
        parts = [model.step(part, caches) for part in characters[:, :-1].split([5, 1, 1, 9], dim=1)]
        whole = [model.step(characters[:, :end], model.start()).log_softmax(-1) for end in range(1, 17)]
        for part, end in zip(parts, (5, 6, 7, 16), strict=True):
            torch.testing.assert_close(part.log_softmax(-1), whole[end - 1], atol=1e-5, rtol=1e-4)
        chosen = [step.gather(1, characters[:, end : end + 1]) for end, step in enumerate(whole, 1)]
        loss = model(characters[:, :-1], characters[:, 1:])
    assert loss.item() == pytest.approx(-torch.stack(chosen).mean().item(), abs=1e-5)
    assert loss.item() == pytest.approx(math.log(11), abs=0.05), "a fresh model knows nothing"


def test_more_than_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="17 characters do not fit into a context of 16"):
        tiny()(torch.zeros(1, 17, dtype=torch.long), torch.zeros(1, 17, dtype=torch.long))


def test_the_start_is_that_of_gpt_2() -> None:
    model = GPT(GPTConfig(65, context=64, layers=8, heads=4, dim=128, bias=True))
    block = next(model.attention_blocks())
    for module in (model.characters, block.attention.q_proj, block.inner):
        assert module.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for linear in (block.attention.out_proj, block.outer):
        assert linear.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    for linear in (block.attention.q_proj, block.attention.out_proj, block.inner, block.outer):
        assert not linear.bias.any()


def test_the_weights_do_not_depend_on_the_norm() -> None:
    """So that runs that differ in p alone start from the same point."""
    weights = []
    for qk_norm in (None, LpKind(1.0), LpKind(4.0)):
        torch.manual_seed(3)
        weights.append([weight for name, weight in tiny(qk_norm).named_parameters() if "q_norm" not in name])
    for others in weights[1:]:
        assert all(torch.equal(a, b) for a, b in zip(weights[0], others, strict=True))
