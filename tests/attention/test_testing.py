from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qknorm
from qknorm.models.gpt import GPT, GPTConfig
from tests.attention.hugging_face import tiny

NUMBERS = torch.arange(24).view(2, 12) % 11


def gpt(**changes: Any) -> GPT:
    torch.manual_seed(0)
    shape = {"context": 16, "layers": 2, "heads": 2, "dim": 32, "bias": True} | changes
    return GPT(GPTConfig(11, **shape))


@pytest.mark.parametrize("qk_norm", ["lp", "rms", {"kind": "layer", "eps": 1e-9}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_our_normalised_layers_pass(qk_norm: Any, dtype: torch.dtype) -> None:
    qknorm.testing.assert_normalized(gpt(qk_norm=qk_norm).to(dtype), (NUMBERS, NUMBERS))


def test_plain_layers_fail_by_name() -> None:
    model = gpt(qk_norm=None)
    model.get_submodule("blocks.1").attention = qknorm.QKNormAttention(32, 2)
    with pytest.raises(AssertionError, match=r"1 of 2 .* blocks\.0\.attention \(by \d+%\)$"):
        qknorm.testing.assert_normalized(model, (NUMBERS, NUMBERS))


def test_saturated_plain_attention_fails() -> None:
    attention = qknorm.QKNormAttention(32, 2, qk_norm=None)
    nn.init.normal_(attention.q_proj.weight, std=30.0)
    with pytest.raises(AssertionError, match="the model itself"):
        qknorm.testing.assert_normalized(attention, torch.randn(1, 9, 32))


def test_qwen3_passes() -> None:
    qknorm.testing.assert_normalized(tiny("qwen3"), {"input_ids": NUMBERS})


def test_llama_fails_in_all_layers() -> None:
    with pytest.raises(AssertionError, match=r"2 of 2 .*model\.layers\.0\.self_attn.*model\.layers\.1\.self_attn"):
        qknorm.testing.assert_normalized(tiny("llama", attention_bias=True), NUMBERS)


@pytest.mark.parametrize("qk_norm", ["lp", None])
def test_the_model_is_left_as_it_was(qk_norm: str | None) -> None:
    model = gpt(qk_norm=qk_norm)
    model.blocks[1].eval()
    parameters = {name: (parameter, parameter.detach().clone()) for name, parameter in model.named_parameters()}
    modes = [module.training for module in model.modules()]
    try:
        qknorm.testing.assert_normalized(model, (NUMBERS, NUMBERS))
    except AssertionError:
        assert qk_norm is None
    for name, parameter in model.named_parameters():
        before, content = parameters[name]
        assert parameter is before
        assert torch.equal(parameter, content)
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())


def test_a_layer_that_is_not_called_proves_nothing() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = qknorm.QKNormAttention(32, 2), qknorm.QKNormAttention(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.used(x)
            return out

    with pytest.raises(ValueError, match="does not reach idle"):
        qknorm.testing.assert_normalized(Idle(), torch.randn(1, 9, 32))


class Attending(nn.Module):
    """An attention module of torch's kind, between sides of three widths."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out: Tensor = self.attention(query, key, value, need_weights=False)[0]
        return out


def sides() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(9, 2, 32), torch.randn(7, 2, 6), torch.randn(7, 2, 10)


@pytest.mark.parametrize("bias", [True, False])
def test_torchs_attention_with_widths_of_its_own_fails(bias: bool) -> None:
    attention = nn.MultiheadAttention(32, 2, kdim=6, vdim=10, bias=bias)
    with pytest.raises(AssertionError, match=r"1 of 1 .* of attention \(by \d+%\)$"):
        qknorm.testing.assert_normalized(Attending(attention), sides())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("qk_norm", ["lp", "rms"])
def test_ours_with_widths_of_its_own_passes(qk_norm: str, bias: bool) -> None:
    attention = qknorm.MultiheadAttention(32, 2, kdim=6, vdim=10, bias=bias, qk_norm=qk_norm)
    if bias:
        nn.init.normal_(attention.get_parameter("in_proj_bias"))
    qknorm.testing.assert_normalized(Attending(attention), sides())


def test_an_attention_that_cannot_be_tried_is_not_passed_over() -> None:
    """Here the matrix is computed from others, so that no parameter of that name can be scaled."""
    hidden = nn.MultiheadAttention(32, 2)
    nn.utils.parametrizations.weight_norm(hidden, "in_proj_weight")
    model = nn.ModuleDict({"known": qknorm.QKNormAttention(32, 2), "hidden": hidden})
    with pytest.raises(ValueError, match="hidden cannot be tried: its queries and keys are not made by parameters"):
        qknorm.testing.assert_normalized(model, torch.randn(2, 9, 32))


@pytest.mark.parametrize("qk_norm", ["lp", None])
def test_an_output_of_zeros_proves_nothing(qk_norm: str | None) -> None:
    attention = qknorm.QKNormAttention(32, 2, qk_norm=qk_norm)
    nn.init.zeros_(attention.out_proj.weight)
    with pytest.raises(ValueError, match=r"nothing is proved about the model itself: its output is all zeros"):
        qknorm.testing.assert_normalized(attention, torch.randn(1, 9, 32))


class Twice(nn.Module):
    """Calls its attention with other inputs in turn: one of them gives zeros."""

    def __init__(self, qk_norm: str | None) -> None:
        super().__init__()
        self.attention = qknorm.QKNormAttention(32, 2, qk_norm=qk_norm)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(torch.zeros_like(x)) + self.attention(x)
        return out


def test_zeros_of_one_call_leave_another_to_prove_it() -> None:
    qknorm.testing.assert_normalized(Twice("lp"), torch.randn(1, 9, 32))
    with pytest.raises(AssertionError, match=r"1 of 1 .* of attention \(by \d+%\)$"):
        qknorm.testing.assert_normalized(Twice(None), torch.randn(1, 9, 32))


def test_nan_from_smaller_queries_alone_fails() -> None:
    class Fragile(qknorm.QKNormAttention):
        def forward(self, query: Tensor, *others: Any, **named: Any) -> Tensor:
            out = super().forward(query, *others, **named)
            return out if self.q_proj(query).abs().max() > 1 else out * torch.nan

    attention = Fragile(32, 2)
    x = torch.randn(1, 9, 32)
    x *= 2 / attention.q_proj(x).abs().max().detach()
    with pytest.raises(AssertionError, match="the model itself"):
        qknorm.testing.assert_normalized(attention, x)


def test_what_proves_nothing_is_refused() -> None:
    attention = qknorm.QKNormAttention(32, 2)
    wrong: list[tuple[nn.Module, Any, str]] = [
        (nn.Linear(2, 2), torch.randn(1, 2), "no attention layer"),
        (gpt(), (NUMBERS[:, :1], NUMBERS[:, :1]), r"proves nothing about blocks\.0\.attention, blocks\.1\.attention"),
        (
            attention,
            torch.randn(0, 9, 32),
            "nothing is proved about the model itself: its output is all zeros or empty",
        ),
    ]
    for model, batch, sentence in wrong:
        with pytest.raises(ValueError, match=sentence):
            qknorm.testing.assert_normalized(model, batch)


def test_what_is_not_normalised_on_both_sides_fails() -> None:
    attention = qknorm.QKNormAttention(32, 2, qk_norm="rms")
    attention.k_norm = nn.Identity()
    torchs = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2)
    for model, sentence in ((attention, "the model itself"), (torchs, r"2 of 2 .*layers\.0\.self_attn")):
        with pytest.raises(AssertionError, match=sentence):
            qknorm.testing.assert_normalized(model, torch.randn(2, 9, 32))
