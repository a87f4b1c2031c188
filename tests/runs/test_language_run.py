from __future__ import annotations

from qknorm import comparable_scale, henry_scale
from qknorm.runs.language_recipe import GPTRecipe
from qknorm.runs.language_run import gpt_config


def test_alpha_starts_at_the_same_value_or_equally_sharp() -> None:
    model = GPTRecipe(dim=96, heads=6, context=64, p=3.0)
    assert gpt_config(model, 65).scale_init == henry_scale(64)
    comparable = model.model_copy(update={"start": "comparable"})
    assert gpt_config(comparable, 65).scale_init == comparable_scale(3.0, 16, henry_scale(64))
    assert gpt_config(model.model_copy(update={"scale_init": 5.0}), 65).scale_init == 5.0
    plain = gpt_config(model.model_copy(update={"qk_norm": "none"}), 65)
    assert (plain.qk_norm, plain.scale_init) == ("none", None)
