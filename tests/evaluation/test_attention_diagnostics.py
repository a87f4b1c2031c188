from __future__ import annotations

import math

import pytest
import torch

from qknorm.evaluation.attention_diagnostics import diagnose
from qknorm.models.gpt import GPT, GPTConfig

SHAPE = {"context": 16, "layers": 2, "heads": 2, "dim": 32, "dropout": 0.0}


def model(**changes: object) -> GPT:
    return GPT(GPTConfig(11, **(SHAPE | changes))).eval()  # type: ignore[arg-type]


def test_equal_weights_have_all_the_entropy() -> None:
    for layer in diagnose(model(scale_init=0.0), torch.randint(11, (3, 16))):
        assert layer["entropy"] == pytest.approx([1.0, 1.0], abs=1e-5)
        assert layer["saturated"] == [0.0, 0.0]
        assert layer["largest_logit"] == [0.0, 0.0]


def test_a_huge_alpha_saturates() -> None:
    for layer in diagnose(model(scale_init=1e5), torch.randint(11, (3, 16))):
        assert max(layer["entropy"]) < 0.2
        assert min(layer["saturated"]) > 0.6


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_no_logit_exceeds_its_bound(p: float) -> None:
    chosen = model(p=p, scale_init=7.0, per_head_scale=True)
    for layer in diagnose(chosen, torch.randint(11, (3, 16))):
        assert layer["bound"] == pytest.approx([7.0 * 16 ** max(0.0, 1 - 2 / p)] * 2)
        assert all(logit <= bound * 1.0001 for logit, bound in zip(layer["largest_logit"], layer["bound"], strict=True))


def test_the_weights_are_those_of_the_attention() -> None:
    chosen, characters = model(p=3.0), torch.randint(11, (1, 16))
    attention, x = next(chosen.attention_inputs(characters))
    with torch.no_grad():
        rows = attention.weights(x, is_causal=True)[0, :, 1:]
    relative = torch.special.entr(rows).sum(-1) / torch.arange(2, 17).log()
    assert diagnose(chosen, characters)[0]["entropy"] == pytest.approx(relative.mean(1).tolist(), abs=1e-5)


def test_plain_attention_has_no_bound_and_a_learned_p_is_shown() -> None:
    assert diagnose(model(qk_norm=None), torch.randint(11, (1, 16)))[0]["bound"] is None
    learned = diagnose(model(learned_p="layer", p=3.0, scale_init=2.0), torch.randint(11, (1, 16)))[0]
    assert learned["p"] == pytest.approx([3.0, 3.0])
    assert learned["bound"] == pytest.approx([2 * 16 ** (1 / 3)] * 2)
    assert not math.isnan(learned["entropy"][0])
