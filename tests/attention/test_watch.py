from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import qknorm
from qknorm.attention.norms import LpKind
from qknorm.attention.observed import Attended, observing
from qknorm.attention.watch import Diagnosis, diagnose
from qknorm.models.gpt import GPT, GPTConfig
from tests.attention.hugging_face import tiny

SHAPE = {"context": 16, "layers": 2, "heads": 2, "dim": 32, "dropout": 0.0}


def gpt(**changes: Any) -> GPT:
    return GPT(GPTConfig(11, **(SHAPE | changes)))


def characters(batch: int = 3) -> Tensor:
    return torch.randint(11, (batch, 16))


def diagnosed(model: GPT, batch: int = 3) -> list[Diagnosis]:
    numbers = characters(batch)
    return diagnose(model, (numbers, numbers))


def seen_in(model: nn.Module, *inputs: Tensor) -> dict[str, Attended]:
    seen: dict[str, Attended] = {}
    with torch.no_grad(), observing(model, lambda name, _layer, attended: seen.update({name: attended})):
        model(*inputs)
    return seen


def test_equal_weights_have_all_the_entropy() -> None:
    for layer in diagnosed(gpt(qk_norm=LpKind(scale_init=0.0))):
        assert layer["entropy"] == pytest.approx([1.0, 1.0], abs=1e-5)
        assert layer["saturated"] == [0.0, 0.0]
        assert layer["largest_logit"] == [0.0, 0.0]


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
def test_no_logit_exceeds_its_bound(p: float) -> None:
    for layer in diagnosed(gpt(qk_norm=LpKind(p, scale_init=7.0, per_head_scale=True))):
        assert layer["g"] == pytest.approx([7.0] * 2)
        assert layer["bound"] == pytest.approx([7.0 * 16 ** max(0.0, 1 - 2 / p)] * 2)
        assert all(logit <= bound * 1.0001 for logit, bound in zip(layer["largest_logit"], layer["bound"], strict=True))


@pytest.mark.parametrize("qk_norm", [None, "lp"])
def test_numbers_are_those_of_the_formula(qk_norm: str | None) -> None:
    attention = qknorm.QKNormAttention(32, 2, qk_norm=qk_norm).double()
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    q, k = (projection(x).view(2, 9, 2, 16).transpose(1, 2) for projection in (attention.q_proj, attention.k_proj))
    logits = (attention.q_norm(q) @ attention.k_norm(k).mT * attention.softmax_scale).tril()
    rows = attention.weights(x, is_causal=True)[:, :, 1:]  # the first has nothing to choose
    entropy = torch.special.entr(rows).sum(-1) / torch.arange(2, 10).log()
    with qknorm.watch(attention) as watched:
        attention(x, is_causal=True)
    ((_, layers),) = watched.looks
    result = layers[""]
    assert result["entropy"] == pytest.approx(entropy.mean((0, 2)).tolist(), rel=1e-6)
    assert result["saturated"] == pytest.approx((rows.amax(-1) > 0.99).double().mean((0, 2)).tolist())
    assert result["largest_logit"] == pytest.approx(logits.abs().amax((0, 2, 3)).tolist(), rel=1e-6)
    assert result["q_norm"] == pytest.approx(q.norm(dim=-1).mean((0, 2)).tolist(), rel=1e-6)
    assert result["k_norm"] == pytest.approx(k.norm(dim=-1).mean((0, 2)).tolist(), rel=1e-6)


def test_rms_norms_have_a_g_that_is_measured() -> None:
    (layer, _) = diagnosed(gpt(qk_norm="rms"))
    assert layer["g"] == pytest.approx([4.0, 4.0], rel=0.01)  # √head_dim, where both weights are 1
    assert layer["bound"] is diagnosed(gpt(qk_norm="none"))[0]["bound"] is None


def test_every_so_many_calls_are_looked_at() -> None:
    model, numbers = gpt(), characters()
    with qknorm.watch(model, every=3) as watched:
        for _ in range(7):
            model(numbers, numbers).backward()
    model(numbers, numbers)
    assert [look.step for look in watched.looks] == [0, 3, 6]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_call_that_fails_leaves_no_hooks() -> None:
    model = gpt()
    with qknorm.watch(model), pytest.raises(ValueError, match="do not fit"):
        model(torch.zeros(1, 17, dtype=torch.int64), None)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_compiled_model_is_seen_and_not_compiled_again() -> None:
    backend, attention = CompileCounter(), qknorm.QKNormAttention(32, 2)
    x, compiled = torch.randn(1, 9, 32), torch.compile(attention, backend=backend)
    assert isinstance(compiled, nn.Module)
    compiled(x)
    compiled_once = backend.frame_count
    with qknorm.watch(compiled, every=2) as watched:
        for _ in range(4):
            compiled(x)
    assert [len(look.layers) for look in watched.looks] == [1, 1]
    assert backend.frame_count == compiled_once


@pytest.mark.parametrize("kind", [qknorm.QKNormAttention, qknorm.MultiheadAttention])
def test_what_was_compiled_in_place_is_seen(kind: type[nn.Module]) -> None:
    attention, x = kind(32, 2), torch.randn(2, 9, 32)
    attention.compile(backend="eager")
    with qknorm.watch(attention, every=2) as watched:
        for _ in range(4):
            attention(x) if kind is qknorm.QKNormAttention else attention(x, x, x)
    assert [len(look.layers) for look in watched.looks] == [1, 1]


def test_rows_and_table_show_every_head() -> None:
    model, numbers = gpt(qk_norm=LpKind(per_head_scale=True)), characters()
    with qknorm.watch(model) as watched:
        model(numbers, numbers)
    rows, (heading, *lines) = watched.rows(), watched.table().splitlines()
    assert [(row["layer"], row["head"]) for row in rows] == [
        (f"blocks.{block}.attention", head) for block in range(2) for head in range(2)
    ]
    columns = {"largest_logit", "entropy", "saturated", "q_norm", "k_norm"}
    assert heading.split()[:4] == ["layer", "head", "g", "bound"]
    assert set(heading.split()[4:]) == columns
    assert [line.split()[:3] for line in lines] == [[row["layer"], str(row["head"]), f"{row['g']:.3g}"] for row in rows]


def test_the_figure_has_a_line_per_layer() -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    model, numbers = gpt(), characters()
    with qknorm.watch(model, every=1) as watched:
        model(numbers, numbers)
        model(numbers, numbers)
    lines: list[Any] = watched.plot().axes[3].get_lines()
    assert [line.get_label() for line in lines] == ["blocks.0.attention", "blocks.1.attention"]
    assert list(lines[0].get_xdata()) == [0, 1]


def test_a_summary_writer_gets_means_over_heads() -> None:
    class Written(dict[tuple[str, int], float]):
        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self[tag, global_step] = scalar_value

    model, numbers, written = gpt(), characters(), Written()
    with qknorm.watch(model, writer=written) as watched:
        model(numbers, numbers)
    heads = watched.looks[0].layers["blocks.1.attention"]["entropy"]
    assert written["entropy/blocks.1.attention", 0] == pytest.approx(sum(heads) / 2)


def test_every_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="every must be at least 1"):
        qknorm.watch(nn.Linear(1, 1), every=0)


def test_nothing_seen_is_an_empty_table_and_a_warning() -> None:
    model = nn.Linear(2, 2)
    with qknorm.watch(model) as watched, pytest.warns(UserWarning, match="no attention in a call of Linear"):
        model(torch.randn(1, 2))
    assert watched.rows() == []


def test_a_call_that_fails_is_not_warned_about() -> None:
    with qknorm.watch(model := nn.Linear(2, 2)), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="shapes"):
            model(torch.randn(1, 3))


def test_two_watches_leave_compiling_as_it_was() -> None:
    backend, attention, x = CompileCounter(), qknorm.QKNormAttention(32, 2), torch.randn(2, 9, 32)
    with qknorm.watch(attention) as a, qknorm.watch(attention, every=5) as b:
        attention(x)
        attention(x)
    torch.compile(lambda x: x + 1, backend=backend)(x)
    assert backend.frame_count
    assert [len(watched.looks) for watched in (a, b)] == [1, 1]
    assert a.rows() == b.rows()


def test_the_bound_holds_where_g_grows_with_the_length() -> None:
    attention = qknorm.QKNormAttention(32, 2, length_scaling=qknorm.LogLength(4), scale_init=10.0)
    attention.k_proj.load_state_dict(attention.q_proj.state_dict())  # each position is most similar to itself
    with qknorm.watch(attention, every=1) as watched:
        attention(torch.randn(2, 256, 32))
        attention(torch.randn(2, 64, 32), is_causal=True)
        attention(torch.randn(2, 64, 32), attn_mask=torch.arange(64)[None] < 16)
    for look, keys in zip(watched.looks, (256, 64, 16), strict=True):
        numbers = look.layers[""]
        expected = 10 * math.log(keys, 4)
        assert numbers["g"] == numbers["bound"] == pytest.approx([expected] * 2)
        assert numbers["largest_logit"] == pytest.approx([expected] * 2, rel=1e-4)


def test_keys_that_nobody_sees_do_not_count() -> None:
    attention, x = qknorm.QKNormAttention(32, 2, qk_norm="rms"), torch.randn(2, 9, 32)
    padded = torch.cat([x, torch.zeros(2, 3, 32)], 1)
    with torch.no_grad(), qknorm.watch(attention, every=1) as watched:
        attention(x, is_causal=True)
        attention(x, is_causal=True, cache=qknorm.FixedKeyValueCache(max_length=64))
        attention(x, padded, attn_mask=(torch.arange(12) < 9)[None, None, None])
        attention(x, padded, is_causal=True)
    expected, *others = (look.layers[""]["g"] for look in watched.looks)
    assert all(g == pytest.approx(expected, rel=1e-5) for g in others)


def test_multihead_attention_has_a_g_and_a_bound() -> None:
    attention, x = qknorm.MultiheadAttention(32, 2, p=4.0, scale_init=3.0), torch.randn(9, 2, 32)
    with qknorm.watch(attention) as watched:
        attention(x, x, x)
    (numbers,) = watched.looks[0].layers.values()
    assert numbers["g"] == [3.0, 3.0]
    assert numbers["bound"] == pytest.approx([3 * 16**0.5] * 2)
    assert 0 < max(numbers["largest_logit"]) <= 3 * 16**0.5


def test_norms_of_a_grafted_projection_are_those_before_its_norm() -> None:
    model, numbers = tiny("llama"), torch.randint(31, (2, 9))
    before = diagnose(model, numbers)[0]
    qknorm.graft(model, [numbers])
    after = diagnose(model, numbers)[0]
    assert after["q_norm"] == pytest.approx(before["q_norm"], rel=1e-4)
    assert after["k_norm"] == pytest.approx(before["k_norm"], rel=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_norms_of_the_attention_interface_are_seen(family: str) -> None:
    model, numbers = tiny(family), torch.randint(31, (2, 9))
    plain = diagnose(model, numbers)[0]
    qknorm.hf.add_lp_norms(model, scale_init=50.0)
    layer = diagnose(model, numbers)[0]
    assert layer["g"] == layer["bound"] == pytest.approx([50.0] * 4)
    assert layer["q_norm"] == pytest.approx(plain["q_norm"], rel=1e-4)
    assert all(3 < logit <= 50.001 for logit in layer["largest_logit"])
    model.set_attn_implementation("sdpa")
    assert diagnose(model, numbers)[0] == plain


def test_a_layer_with_norms_of_the_attention_interface_is_not_grafted() -> None:
    model = tiny("llama")
    qknorm.hf.add_lp_norms(model)
    with pytest.raises(ValueError, match="no attention layer without query-key normalisation"):
        qknorm.graft(model, [torch.randint(31, (2, 9))])
