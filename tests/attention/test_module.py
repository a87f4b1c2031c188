from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm import (
    KeyValueCache,
    LpNorm,
    QKNormAttention,
    parameter_groups,
    qk_attention,
)

DIM, HEADS, LENGTH = 32, 4, 10

KINDS: list[dict[str, Any]] = [
    {},
    {"p": 3.0, "per_head_scale": True},
    {"p": math.inf, "num_kv_heads": 2},
    {"normalize_value": True},
    {"qk_norm": "rms", "num_kv_heads": 1},
    {"qk_norm": "layer"},
    {"qk_norm": None, "bias": False},
]


def kind_name(kind: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in kind.items()) or "default"


all_kinds = pytest.mark.parametrize("kind", KINDS, ids=kind_name)


def sequence(length: int = LENGTH) -> Tensor:
    return torch.randn(3, length, DIM)


def split(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


@all_kinds
def test_every_parameter_gets_a_gradient(kind: dict[str, Any]) -> None:
    attention = QKNormAttention(DIM, HEADS, **kind)
    (attention(sequence(), is_causal=True) * sequence()).sum().backward()
    for name, parameter in attention.named_parameters():
        if name in ("k_proj.bias", "k_norm.bias") and kind.get("qk_norm", "lp") != "lp":
            continue  # a constant added to all keys moves all logits alike: its gradient is zero
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_it_is_projections_around_the_function() -> None:
    attention = QKNormAttention(DIM, HEADS, num_kv_heads=2, p=3.0, per_head_scale=True)
    x, memory = sequence(), sequence(17)
    q = split(attention.q_proj(x), HEADS)
    k, v = split(attention.k_proj(memory), 2), split(attention.v_proj(memory), 2)
    assert isinstance(attention.q_norm, LpNorm)
    assert attention.q_norm.scale is not None
    mixed = qk_attention(q, k, v, attention.q_norm.scale, p=3.0, enable_gqa=True)
    expected = attention.out_proj(mixed.transpose(1, 2).reshape(3, LENGTH, DIM))
    assert torch.allclose(attention(x, memory), expected, atol=1e-6)


def test_without_normalisation_it_is_torchs_multi_head_attention() -> None:
    ours = QKNormAttention(DIM, HEADS, qk_norm=None)
    torchs = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        torchs.in_proj_bias.copy_(torch.cat([ours.q_proj.bias, ours.k_proj.bias, ours.v_proj.bias]))
        torchs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x, memory = sequence(), sequence(17)
    expected, expected_weights = torchs(x, memory, memory, average_attn_weights=False)
    assert torch.allclose(ours(x, memory), expected, atol=1e-6)
    assert torch.allclose(ours.weights(x, memory), expected_weights, atol=1e-6)


@pytest.mark.parametrize(("norm", "of_torch"), [("rms", F.rms_norm), ("layer", F.layer_norm)])
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_the_other_norms_are_torchs_over_each_head(norm: Any, of_torch: Callable[..., Tensor], eps: float) -> None:
    """And so rms is what Qwen3 has: a weight per dimension, then 1/√head_dim."""
    attention, x = QKNormAttention(DIM, HEADS, num_kv_heads=2, qk_norm=norm, eps=eps), sequence()
    weights = [nn.init.uniform_(attention.get_parameter(f"{name}_norm.weight"), 0.5, 1.5) for name in "qk"]
    q, k, v = split(attention.q_proj(x), HEADS), split(attention.k_proj(x), 2), split(attention.v_proj(x), 2)
    q, k = (of_torch(side, (8,), weight, eps=eps) for side, weight in zip((q, k), weights, strict=True))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    expected = attention.out_proj(mixed.transpose(1, 2).reshape(3, LENGTH, DIM))
    assert torch.allclose(attention(x, is_causal=True), expected, atol=1e-5)


@all_kinds
def test_weights_are_those_of_the_output(kind: dict[str, Any]) -> None:
    attention = QKNormAttention(DIM, HEADS, **kind)
    x = sequence()
    weights = attention.weights(x, is_causal=True)
    _, values = attention.key_values(x)
    mixed = weights @ values.repeat_interleave(HEADS // attention.num_kv_heads, 1)
    expected = attention.out_proj(mixed.transpose(1, 2).reshape(3, LENGTH, DIM))
    assert torch.allclose(attention(x, is_causal=True), expected, atol=1e-5)


class TestStart:
    def test_projections_start_as_in_the_paper(self) -> None:
        attention = QKNormAttention(512, 8, num_kv_heads=4)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
            assert projection.weight.std().item() == pytest.approx(math.sqrt(2 / (5 * 512)), rel=0.02)
            assert not projection.bias.any()

    @all_kinds
    def test_weights_travel(self, kind: dict[str, Any]) -> None:
        attention = QKNormAttention(DIM, HEADS, **kind)
        other = QKNormAttention(DIM, HEADS, **kind)
        other.load_state_dict(attention.state_dict())
        x = sequence()
        assert torch.equal(other(x), attention(x))
        assert torch.equal(copy.deepcopy(attention)(x), attention(x))


def test_dropout_acts_in_training_only() -> None:
    attention = QKNormAttention(DIM, HEADS, dropout=0.5)
    x = sequence()
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


@torch.no_grad()
@pytest.mark.parametrize("kind", [{}, {"qk_norm": None}, {"num_kv_heads": 2}], ids=kind_name)
def test_autocast_leaves_the_logits_of_weights_exact(kind: dict[str, Any]) -> None:
    attention, x = QKNormAttention(DIM, HEADS, **kind), sequence()
    with torch.autocast("cpu", torch.bfloat16):
        weights = attention.weights(x)
        q, k = attention._queries(x), attention.key_values(x).keys.repeat_interleave(HEADS // attention.num_kv_heads, 1)
    logits = q.double() @ k.double().transpose(-2, -1) * attention.softmax_scale
    torch.testing.assert_close(weights, logits.softmax(-1).bfloat16(), rtol=0.004, atol=0)  # rounded once


@torch.no_grad()
@pytest.mark.parametrize("positions", [1, 2])
@pytest.mark.parametrize("training", [True, False])
def test_cached_steps_of_any_length_drop_weights_in_training(training: bool, positions: int) -> None:
    attention, x = QKNormAttention(DIM, HEADS, dropout=0.5).train(training), sequence(LENGTH + positions)
    results = []
    for _ in range(2):
        cache = KeyValueCache()
        attention(x[:, :LENGTH], is_causal=True, cache=cache)
        results.append(attention(x[:, LENGTH:], is_causal=True, cache=cache))
    assert torch.equal(*results) is not training


@all_kinds
@pytest.mark.parametrize("shape", [(0, LENGTH), (3, 0), (0, 0)])
def test_nothing_attends_to_nothing(kind: dict[str, Any], shape: tuple[int, int]) -> None:
    attention = QKNormAttention(DIM, HEADS, **kind)
    x = torch.randn(*shape, DIM, requires_grad=True)
    out = attention(x, is_causal=True)
    assert out.shape == x.shape
    out.sum().backward()
    assert x.grad is not None
    assert attention.weights(x).shape == (shape[0], HEADS, shape[1], shape[1])


@all_kinds
def test_an_empty_memory_is_a_query_that_may_attend_to_nothing(kind: dict[str, Any]) -> None:
    attention = QKNormAttention(DIM, HEADS, length_scaling="log", **kind)
    hidden = torch.zeros(LENGTH, 1, dtype=torch.bool)
    expected = attention(sequence(), sequence(1), attn_mask=hidden)
    torch.testing.assert_close(attention(sequence(), sequence(0)), expected)


@pytest.mark.parametrize(("kind", "dropout"), [*((kind, 0.0) for kind in KINDS), ({}, 0.5)], ids=str)
def test_it_compiles_to_one_graph(kind: dict[str, Any], dropout: float) -> None:
    torch.compiler.reset()
    attention, x = QKNormAttention(DIM, HEADS, dropout=dropout, **kind), sequence()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    answers = compiled(x, is_causal=True), compiled(x, is_causal=True)
    assert torch.equal(*answers) is (not dropout)
    if not dropout:
        assert torch.allclose(answers[0], attention(x, is_causal=True), atol=1e-5)


@pytest.mark.slow
def test_the_real_compiler_trains_it() -> None:
    torch.compiler.reset()
    attention = QKNormAttention(DIM, HEADS, p=3.0)
    twin = copy.deepcopy(attention)
    x = sequence()
    torch.compile(attention, fullgraph=True)(x, is_causal=True).pow(2).sum().backward()
    twin(x, is_causal=True).pow(2).sum().backward()
    compiled, eager = ([parameter.grad for parameter in module.parameters()] for module in (attention, twin))
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-4)


class TestParameterGroups:
    def test_only_matrices_outside_norms_decay(self) -> None:
        model = nn.ModuleDict(
            {
                "attention": QKNormAttention(DIM, HEADS, per_head_scale=True),
                "ff": nn.Linear(DIM, DIM),
                "final_norm": nn.LayerNorm([2, DIM]),  # a norm whose weight is a matrix
            }
        )
        model.get_submodule("ff").get_parameter("bias").requires_grad_(False)  # frozen parameters are left out
        decayed, undecayed = parameter_groups(model, 0.1)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        assert [decayed["weight_decay"], undecayed["weight_decay"]] == [0.1, 0.0]
        projections = {f"attention.{name}_proj.weight" for name in ("q", "k", "v", "out")}
        assert {names[id(parameter)] for parameter in decayed["params"]} == {*projections, "ff.weight"}
        assert len(decayed["params"]) + len(undecayed["params"]) == len(names) - 1

    def test_a_sublayer_that_is_only_named_after_a_norm_decays(self) -> None:
        model = nn.ModuleDict({"prenorm": nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM))})
        decayed, undecayed = parameter_groups(model, 0.1)
        assert [tuple(parameter.shape) for parameter in decayed["params"]] == [(DIM, DIM)]
        assert len(undecayed["params"]) == 3

    @pytest.mark.parametrize("log_scale", [False, True])
    def test_g_is_found_whatever_its_norm_is_called(self, log_scale: bool) -> None:
        model = nn.ModuleDict(
            {
                "norm1": LpNorm(DIM, log_scale=log_scale),
                "seq": nn.Sequential(LpNorm(DIM, log_scale=log_scale), nn.Linear(DIM, DIM)),
                "ln_q": LpNorm(DIM, num_heads=HEADS, log_scale=log_scale),
            }
        )
        _, undecayed, scales = parameter_groups(model, 0.1, scale_lr=0.05)
        assert [len(parameter) for parameter in scales["params"]] == [1, 1, HEADS]
        assert (scales["lr"], scales["weight_decay"], len(undecayed["params"])) == (0.05, 0.0, 1)
        (alone,) = parameter_groups(model["ln_q"], 0.1, scale_lr=0.05)[2]["params"]
        assert alone is scales["params"][-1]

    def test_the_weight_of_a_foreign_norm_is_not_g(self) -> None:
        """torchtune's RMSNorm calls it `scale`."""
        foreign = nn.Module()
        foreign.scale = nn.Parameter(torch.ones(DIM))
        _, undecayed, scales = parameter_groups(nn.ModuleDict({"sa_norm": foreign}), 0.1, scale_lr=0.05)
        assert [*undecayed["params"]] == [foreign.scale]
        assert not scales["params"]

    def test_a_g_that_norms_share_is_given_once(self) -> None:
        first, second = LpNorm(DIM), LpNorm(DIM)
        second.scale = first.scale
        keeper = nn.Module()
        keeper.register_parameter("matrix", first.scale)
        _, undecayed, scales = parameter_groups(nn.ModuleList([keeper, first, second]), 0.1, scale_lr=0.05)
        assert [*scales["params"]] == [first.scale]
        assert not undecayed["params"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 5}, r"embed_dim \(32\) must be a multiple of num_heads \(5\)"),
        ({"num_heads": 0}, "must be a multiple of num_heads"),
        ({"num_kv_heads": 3}, r"num_heads \(4\) must be a multiple of num_kv_heads \(3\)"),
        ({"qk_norm": "l2"}, 'must be "lp", "rms", "layer" or None'),
        ({"p": 0.5}, "p must be a number from 1"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"qk_norm": "rms", "per_head_scale": True}, 'belong to qk_norm="lp"'),
        ({"qk_norm": None, "scale_init": 3.0}, 'belong to qk_norm="lp"'),
        ({"qk_norm": "layer", "p": 3.0}, 'belong to qk_norm="lp"'),
        ({"scale_init": math.nan}, "scale_init must be a finite number"),
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QKNormAttention(**{"embed_dim": DIM, "num_heads": HEADS, **arguments})


def test_a_query_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"query must be \(batch, length, 32\), not \(3, 10, 16\)"):
        QKNormAttention(DIM, HEADS)(torch.randn(3, 10, 16))


@torch.no_grad()
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("length_scaling", ["log", None])
def test_a_mask_of_whole_numbers_is_refused(length_scaling: Any, is_causal: bool) -> None:
    attention = QKNormAttention(DIM, HEADS, length_scaling=length_scaling)
    options: dict[str, Any] = {"attn_mask": torch.ones(LENGTH, LENGTH, dtype=torch.long), "is_causal": is_causal}
    for call in (attention, attention.weights, partial(attention, cache=KeyValueCache())):
        with pytest.raises(TypeError, match=r"attn_mask must be boolean or floating-point, not torch\.int64"):
            call(sequence(), **options)
