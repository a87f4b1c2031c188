from __future__ import annotations

from typing import Any

from qknorm import comparable_scale, henry_scale
from qknorm.attention.norms import LpKind, PlainKind
from qknorm.runs.language_recipe import GPTRecipe
from qknorm.runs.language_run import gpt_config, scale_start


def test_g_starts_at_the_same_value_or_equally_sharp() -> None:
    def start(**options: Any) -> float | None:
        return scale_start(GPTRecipe.model_validate({"dim": 96, "heads": 6, "context": 64, "p": 3.0} | options))

    assert start() == henry_scale(64)
    assert start(start="comparable") == comparable_scale(3.0, 16, henry_scale(64))
    assert start(scale_init=5.0) == 5.0
    assert start(scale_init="comparable") is None
    assert start(qk_norm="none") is None


def test_a_model_has_the_kind_of_its_recipe() -> None:
    assert gpt_config(GPTRecipe.model_validate({"p": 3.0, "scale_init": 5.0}), 65).qk_norm == LpKind(
        3.0, scale_init=5.0
    )
    assert gpt_config(GPTRecipe.model_validate({"p": 3.0, "qk_norm": "none"}), 65).qk_norm == PlainKind()
