from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from qknorm import LpNorm, MultiheadAttention, QKNormAttention
from qknorm.attention.norms import KINDS, Heads, LpKind, Norms, PlainKind, kind_of
from tests.attention import test_module as layers
from tests.attention.test_module import DIM, HEADS, kind_name, sequence


class TestLpNorm:
    def test_it_starts_as_rms_norm(self) -> None:
        x = torch.randn(3, 5, 16)
        assert torch.allclose(LpNorm(16)(x), nn.RMSNorm(16)(x), atol=1e-5)

    def test_it_takes_the_arguments_of_rms_norm(self) -> None:
        norm = LpNorm([16], 1e-6, False, torch.device("cpu"), torch.float64)
        assert not list(norm.parameters())
        assert norm.eps == 1e-6
        learnable = LpNorm(normalized_shape=16, eps=1e-6, elementwise_affine=True, device="meta", dtype=torch.bfloat16)
        assert learnable.scale is not None
        assert (learnable.scale.device.type, learnable.scale.dtype) == ("meta", torch.bfloat16)

    def test_a_vector_within_eps_becomes_zero(self) -> None:
        assert not LpNorm(4, eps=1e-3)(torch.full((4,), 1e-4)).any()

    @pytest.mark.parametrize("log_scale", [False, True])
    @pytest.mark.parametrize("num_heads", [None, 4])
    def test_g_can_be_read_whichever_way_it_is_learned(self, log_scale: bool, num_heads: int | None) -> None:
        norm = LpNorm(16, scale_init=7.0, num_heads=num_heads, log_scale=log_scale)
        assert norm.g is not None
        torch.testing.assert_close(norm.g.detach(), torch.full((num_heads or 1,), 7.0))

    def test_adam_moves_a_logarithm_in_proportion(self) -> None:
        for start in (2.0, 300.0):
            norm = LpNorm(4, scale_init=start, log_scale=True)
            optimizer = torch.optim.Adam(norm.parameters(), lr=0.01)
            norm(torch.ones(4)).sum().backward()
            optimizer.step()
            assert norm.g is not None
            assert norm.g.item() / start == pytest.approx(math.exp(-0.01), rel=1e-4)

    @pytest.mark.parametrize("shape", [(2, 3, 32), (64, 1), ()])
    def test_another_width_is_refused(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=re.escape(f"LpNorm(64) needs (..., 64), not {shape}")):
            LpNorm(64)(torch.randn(shape))

    @pytest.mark.parametrize("shape", [(2, 64), [2, 64], torch.Size([2, 64]), ()])
    def test_several_dimensions_are_refused(self, shape: Any) -> None:
        sentence = f"LpNorm normalises over one dimension, so normalized_shape must be one number, not {tuple(shape)}"
        with pytest.raises(ValueError, match=re.escape(sentence)):
            LpNorm(shape)

    @pytest.mark.parametrize("shape", [16, (16,), [16], torch.Size([16]), numpy.int64(16)])
    def test_one_dimension_may_be_given_as_to_rms_norm(self, shape: Any) -> None:
        assert LpNorm(shape).dim == 16
        assert nn.RMSNorm(shape).normalized_shape == (16,)

    def test_impossible_starts_are_refused(self) -> None:
        with pytest.raises(ValueError, match="must be positive where ln g is learned"):
            LpNorm(4, scale_init=-1.0, log_scale=True)


def g_of(attention: QKNormAttention) -> Tensor:
    assert isinstance(attention.q_norm, LpNorm)
    assert attention.q_norm.g is not None
    return attention.q_norm.g.detach()


class TestCheckpoints:
    def test_a_g_without_a_dimension_loads(self) -> None:
        """So earlier versions kept it, and they said nothing about p."""
        attention = QKNormAttention(DIM, HEADS)
        old = {name: tensor for name, tensor in attention.state_dict().items() if "extra" not in name}
        old["q_norm.scale"] = torch.tensor(3.5)
        attention.load_state_dict(old)
        assert attention.state_dict()["q_norm.scale"].tolist() == [3.5]

    @pytest.mark.parametrize(("trained", "loaded"), [(2.0, 3.0), (2.0, math.inf), (math.inf, 2.0), (2.5, 2.0)])
    def test_another_p_is_an_error_that_says_so(self, trained: float, loaded: float) -> None:
        state = QKNormAttention(DIM, HEADS, p=trained).state_dict()
        sentence = f"q_norm normalises with p = {loaded:g}, but the checkpoint was trained with p = {trained:g}"
        with pytest.raises(RuntimeError, match=sentence):
            QKNormAttention(DIM, HEADS, p=loaded).load_state_dict(state)

    @pytest.mark.parametrize("p", [2.7, math.inf])
    def test_a_p_that_was_rounded_is_the_same(self, p: float) -> None:
        state = {name: tensor.bfloat16() for name, tensor in QKNormAttention(DIM, HEADS, p=p).state_dict().items()}
        QKNormAttention(DIM, HEADS, p=p).load_state_dict(state)

    @pytest.mark.parametrize("per_head", [False, True])
    @pytest.mark.parametrize("saved_as_logarithm", [False, True])
    def test_a_number_and_its_logarithm_load_into_each_other(self, saved_as_logarithm: bool, per_head: bool) -> None:
        saved, loaded = (
            QKNormAttention(DIM, HEADS, log_scale=log_scale, per_head_scale=per_head, scale_init=start)
            for log_scale, start in ((saved_as_logarithm, 3.0), (not saved_as_logarithm, 9.0))
        )
        loaded.load_state_dict(saved.state_dict())
        torch.testing.assert_close(g_of(loaded), torch.full((HEADS if per_head else 1,), 3.0))

    @pytest.mark.parametrize("g", [-2.0, 0.0, math.nan])
    def test_a_g_without_a_logarithm_is_an_error_that_says_so(self, g: float) -> None:
        state = QKNormAttention(DIM, HEADS, per_head_scale=True, scale_init=3.0).state_dict()
        state["q_norm.scale"][1] = g
        attention = QKNormAttention(DIM, HEADS, per_head_scale=True, log_scale=True, scale_init=5.0)
        sentence = f"q_norm learns ln g, but the checkpoint holds g = {g:g}, which has no logarithm"
        with pytest.raises(RuntimeError, match=sentence) as error:
            attention.load_state_dict(state)
        assert "Missing" not in str(error.value)
        torch.testing.assert_close(g_of(attention), torch.full((HEADS,), 5.0))

    @pytest.mark.parametrize("loads_logarithm", [False, True])
    @pytest.mark.parametrize("p", [2.0, 3.0])
    def test_a_checkpoint_without_memory_loads(self, p: float, loads_logarithm: bool, tmp_path: Path) -> None:
        """There g and p cannot be read, and so neither is checked."""
        torch.save(QKNormAttention(DIM, HEADS).state_dict(), tmp_path / "state.pt")
        with torch.device("meta"):
            attention = QKNormAttention(DIM, HEADS, p=p, log_scale=loads_logarithm)
        attention.load_state_dict(torch.load(tmp_path / "state.pt", map_location="meta"), assign=True)
        assert all(parameter.is_meta for parameter in attention.parameters())

    def test_a_checkpoint_of_fake_tensors_loads(self) -> None:
        with FakeTensorMode():
            state = QKNormAttention(DIM, HEADS).state_dict()
            QKNormAttention(DIM, HEADS, log_scale=True).load_state_dict(state)

    def test_the_callers_dictionary_stays_as_it_is(self) -> None:
        state = QKNormAttention(DIM, HEADS).state_dict()
        before = set(state)
        QKNormAttention(DIM, HEADS, log_scale=True).load_state_dict(state)
        assert set(state) == before


class TestReset:
    """Modules are made without memory first, and reset by whoever loads or shards them, in their order."""

    @staticmethod
    def parents_first(attention: nn.Module) -> None:
        for module in attention.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]

    @staticmethod
    def children_first(attention: nn.Module) -> None:
        attention.apply(lambda module: module.reset_parameters() if list(module.parameters(recurse=False)) else None)  # type: ignore[operator]

    @pytest.mark.parametrize("order", ["parents_first", "children_first"])
    @pytest.mark.parametrize("kind", [*layers.KINDS, {"log_scale": True, "scale_init": 3.0}], ids=kind_name)
    def test_it_gives_the_weights_of_the_constructor(self, kind: dict[str, Any], order: str) -> None:
        torch.manual_seed(1)
        expected = QKNormAttention(DIM, HEADS, **kind)
        attention = QKNormAttention(DIM, HEADS, device="meta", **kind).to_empty(device="cpu")
        with torch.no_grad():
            for parameter in attention.parameters():
                parameter.fill_(math.nan)
        torch.manual_seed(1)
        getattr(self, order)(attention)
        torch.testing.assert_close(list(attention.parameters()), list(expected.parameters()), rtol=0, atol=0)

    def test_a_device_context_makes_it_without_memory(self) -> None:
        with torch.device("meta"):
            attention = QKNormAttention(DIM, HEADS, p=3.0)
        assert all(parameter.is_meta for parameter in attention.parameters())
        assert attention.state_dict()["q_norm._extra_state"].item() == 3.0

    @pytest.mark.parametrize("kind", layers.KINDS, ids=kind_name)
    def test_parameters_have_the_type_that_is_asked_for(self, kind: dict[str, Any]) -> None:
        attention = QKNormAttention(DIM, HEADS, dtype=torch.float64, **kind)
        assert {parameter.dtype for parameter in attention.parameters()} == {torch.float64}
        assert attention(sequence().double()).dtype == torch.float64


@dataclass(frozen=True)
class HalvedKind:
    """A kind of somebody else: keys are halved."""

    def make(self, heads: Heads) -> Norms:
        class Halved(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x / 2

        return Norms(nn.Identity(), Halved(), nn.Identity(), 2 * heads.dim**-0.5)


class TestKinds:
    def test_a_kind_of_ones_own_is_injected(self) -> None:
        ours, plain = QKNormAttention(DIM, HEADS, qk_norm=HalvedKind()), QKNormAttention(DIM, HEADS, qk_norm="none")
        ours.load_state_dict(plain.state_dict())
        x, angles = sequence(), torch.rand(10, 4).repeat(1, 2)
        for rotary in (None, (angles.cos(), angles.sin())):  # the norm itself need not know of positions
            assert torch.allclose(ours(x, rotary=rotary), plain(x, rotary=rotary), atol=1e-6)

    @pytest.mark.parametrize("layer", [QKNormAttention, MultiheadAttention])
    def test_a_kind_may_come_with_its_options(self, layer: type[nn.Module]) -> None:
        flat = layer(DIM, HEADS, p=3.0, per_head_scale=True)
        for kind in (LpKind(p=3.0, per_head_scale=True), {"kind": "lp", "p": 3.0, "per_head_scale": True}):
            twin = layer(DIM, HEADS, qk_norm=kind)
            assert str(twin.q_norm) == str(flat.q_norm)
            with pytest.raises(ValueError, match="p must be set on the kind"):
                layer(DIM, HEADS, qk_norm=kind, p=3.0)

    def test_plain_attention_with_torchs_layer_is_torchs_however_it_is_asked_for(self) -> None:
        for kind in (None, "none", {"kind": "none"}, PlainKind()):
            assert MultiheadAttention(DIM, HEADS, qk_norm=kind).qk_norm is None

    @pytest.mark.parametrize(
        ("kind", "sentence"),
        [
            ({"p": 3.0}, """qk_norm with options needs their "kind", one of "lp", "rms", "layer", not {'p': 3.0}"""),
            ({"kind": "l3"}, """qk_norm must be "lp", "rms", "layer" or None, not 'l3'"""),
            ({"kind": "rms", "p": 3.0}, "p cannot be set for qk_norm='rms': such options belong to qk_norm=\"lp\""),
            ({"kind": "rms", "q": 3.0}, "q cannot be set for qk_norm='rms': it has eps"),
            ({"kind": "lp", "p": 0.5}, "p must be a number from 1 to infinity (math.inf), not 0.5"),
            ({"kind": "layer", "eps": -1.0}, "eps must be a finite number from 0 on, not -1.0"),
        ],
    )
    def test_a_kind_that_is_written_wrong_is_refused(self, kind: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            kind_of(kind)

    def test_a_new_kind_is_one_line_of_the_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(KINDS, "halved", HalvedKind)
        assert kind_of("halved") == kind_of({"kind": "halved"}) == HalvedKind()
        assert QKNormAttention(DIM, HEADS, qk_norm="halved").softmax_scale == 2 * (DIM // HEADS) ** -0.5

    def test_g_may_be_kept_at_its_start(self) -> None:
        query = LpKind(scale_init=5.0, learn_scale=False).make(Heads(HEADS, 4)).query
        assert [(float(g), g.requires_grad) for g in query.parameters()] == [(5.0, False)]

    @pytest.mark.parametrize("kind", layers.KINDS, ids=kind_name)
    def test_under_autocast_keys_have_the_type_of_values(self, kind: dict[str, Any]) -> None:
        attention = QKNormAttention(DIM, HEADS, **kind)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            keys, values = attention.key_values(sequence())
            queries = attention._queries(sequence())
        assert keys.dtype == values.dtype == queries.dtype == torch.bfloat16

    @pytest.mark.parametrize("kind", layers.KINDS, ids=kind_name)
    def test_heads_may_be_of_any_width(self, kind: dict[str, Any]) -> None:
        attention = QKNormAttention(DIM, HEADS, head_dim=24, **kind)
        assert attention.q_proj.weight.shape == (HEADS * 24, DIM)
        assert attention(sequence(), is_causal=True).shape == (3, 10, DIM)
        assert QKNormAttention(30, 4, head_dim=8, **kind)(torch.randn(2, 5, 30)).shape == (2, 5, 30)
