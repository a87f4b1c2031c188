from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from qknorm import QKNormAttention, comparable_scale, normalize_qk, qk_attention, qk_attention_weights
from qknorm.ops.attention import attend
from qknorm.ops.rotary import rotate
from tests.attention import reference
from tests.attention.reference import DTYPES, P_VALUES, p_name
from tests.ops.modes import Watch

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
HEADS, HEAD_DIM = 4, 16


def inputs(keys: int, kv_heads: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """q of 9 positions, k and v of `keys`."""

    def draw(heads: int, length: int) -> Tensor:
        return torch.randn(2, heads, length, HEAD_DIM, dtype=torch.float64).to(dtype).requires_grad_()

    return draw(HEADS, 9), draw(kv_heads, keys), draw(kv_heads, keys)


def padding(keys: int) -> Tensor:
    """The second sequence of the batch is three keys shorter."""
    lengths = torch.tensor([keys, keys - 3])
    return (torch.arange(keys) < lengths[:, None])[:, None, None, :]


def causal(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril()


@pytest.mark.parametrize("kv_heads", [HEADS, 2], ids=["all heads", "grouped"])
@pytest.mark.parametrize("mask", ["none", "causal", "padded"])
@pytest.mark.parametrize("keys", [9, 13], ids=["self", "cross"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", P_VALUES, ids=p_name)
def test_output_and_gradients_equal_the_reference(
    p: float, dtype: torch.dtype, keys: int, mask: str, kv_heads: int
) -> None:
    tensors = inputs(keys, kv_heads, dtype)
    g = torch.linspace(0.5, 1.5, HEADS) * comparable_scale(p, HEAD_DIM, 4.0)
    g = g.to(torch.float64 if dtype == torch.float64 else torch.float32).requires_grad_()
    attn_mask = padding(keys) if mask == "padded" else None
    out = qk_attention(*tensors, g, p=p, attn_mask=attn_mask, is_causal=mask == "causal", enable_gqa=kv_heads != HEADS)
    d_out = torch.randn_like(out)
    actual = torch.autograd.grad(out, [*tensors, g], d_out)

    wide = [tensor.detach().double().requires_grad_() for tensor in (*tensors, g)]
    full_mask = causal(9, keys) if mask == "causal" else attn_mask
    expected = reference.attention(wide[0], wide[1], wide[2], wide[3], p, full_mask)
    expected_gradients = torch.autograd.grad(expected, wide, d_out.double())

    assert out.dtype == dtype
    close: dict[str, Any] = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    assert torch.allclose(out.double(), expected, **close)
    if math.isinf(p) and dtype in (torch.bfloat16, torch.float16):
        return  # rounding makes ties, and among equals the largest entry is a matter of choice
    for gradient, expected_gradient in zip(actual, expected_gradients, strict=True):
        size = expected_gradient.abs().max().clamp_min(1).item()
        assert torch.allclose(gradient.double() / size, expected_gradient / size, **close)


@pytest.mark.parametrize("p", [2.0, 3.0], ids=p_name)
def test_second_derivatives_of_the_whole_with_torchs_plain_kernel(p: float) -> None:
    tensors = [torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    g = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(lambda q, k, v, g: qk_attention(q, k, v, g, p=p), (*tensors, g))


class TestScale:
    def test_a_python_number_keeps_its_precision(self) -> None:
        q, k, v = inputs(9, HEADS, torch.float64)
        exact = qk_attention(q, k, v, torch.tensor(12.3, dtype=torch.float64))
        assert torch.equal(qk_attention(q, k, v, 12.3), exact)

    def test_a_number_and_both_shapes_agree(self) -> None:
        q, k, v = inputs(9, HEADS)
        expected = qk_attention(q, k, v, 3.0)
        assert torch.equal(qk_attention(q, k, v, torch.tensor(3.0)), expected)
        assert torch.equal(qk_attention(q, k, v, torch.full((HEADS,), 3.0)), expected)

    def test_a_scale_of_zero_attends_evenly_and_can_still_learn(self) -> None:
        q, k, v = inputs(9, HEADS)
        g = torch.tensor(0.0, requires_grad=True)
        out = qk_attention(q, k, v, g)
        assert torch.allclose(out, v.mean(-2, keepdim=True).expand_as(out), atol=1e-6)
        (dg,) = torch.autograd.grad((out * torch.randn_like(out)).sum(), g)
        assert dg != 0


class TestMasks:
    @pytest.mark.parametrize("floats", [False, True])
    def test_causal_and_padding_together(self, floats: bool) -> None:
        q, k, v = inputs(9, HEADS)
        mask = padding(9)
        given_mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf) if floats else mask
        out = qk_attention(q, k, v, 5.0, attn_mask=given_mask, is_causal=True)
        expected = reference.attention(q, k, v, torch.tensor(5.0), 2.0, mask & causal(9, 9))
        assert torch.allclose(out.double(), expected, atol=1e-5)

    @pytest.mark.parametrize("floats", [False, True])
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_a_query_that_may_attend_to_nothing_gives_zeros(self, dtype: torch.dtype, floats: bool) -> None:
        q, k, v = inputs(9, HEADS, dtype)
        mask = torch.ones(2, 1, 9, 9, dtype=torch.bool)
        mask[1, :, 4] = False
        given_mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf) if floats else mask
        out = qk_attention(q, k, v, 5.0, attn_mask=given_mask)
        weights = qk_attention_weights(q, k, 5.0, attn_mask=given_mask)
        assert not out[1, :, 4].any()
        assert not weights[1, :, 4].any()
        assert out[0].any()
        for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
            assert gradient.isfinite().all()


class TestWeights:
    @pytest.mark.parametrize("p", P_VALUES, ids=p_name)
    @pytest.mark.parametrize("kv_heads", [HEADS, 2])
    def test_they_are_the_probabilities_of_the_attention(self, p: float, kv_heads: int) -> None:
        q, k, v = inputs(13, kv_heads)
        options: dict[str, Any] = {"p": p, "attn_mask": padding(13), "enable_gqa": kv_heads != HEADS}
        g = torch.tensor(comparable_scale(p, HEAD_DIM, 4.0))
        weights = qk_attention_weights(q, k, g, **options)
        assert torch.allclose(weights.sum(-1), torch.ones(2, HEADS, 9), atol=1e-5)
        mixed = weights @ v.repeat_interleave(HEADS // kv_heads, 1)
        assert torch.allclose(mixed, qk_attention(q, k, v, g, **options), atol=1e-5)


def with_kernel(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return qk_attention(q, k, v, 5.0)


flash_kernel, math_kernel = (partial(with_kernel, backend) for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH))


def compiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    torch.compiler.reset()
    function: Callable[..., Tensor] = torch.compile(qk_attention, fullgraph=True, backend="aot_eager")
    return function(q, k, v, 5.0)


def without_gradients(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.inference_mode():
        return qk_attention(q, k, v, 5.0)


def mapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    result: Tensor = torch.func.vmap(lambda q, k, v: qk_attention(q, k, v, 5.0))(q, k, v)
    return result


@pytest.mark.parametrize("path", [flash_kernel, math_kernel, compiled, without_gradients, mapped])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_path_skips_the_normalisation(path: Callable[..., Tensor], dtype: torch.dtype) -> None:
    """Queries and keys a hundred times as long: plain attention would saturate, ours must not notice."""
    q, k, v = (tensor.detach() for tensor in inputs(9, HEADS, dtype))
    expected = reference.attention(q, k, v, torch.tensor(5.0), 2.0)
    assert torch.allclose(path(128 * q, 128 * k, v).double(), expected, atol=TOLERANCE[dtype])


def tables(length: int) -> tuple[Tensor, Tensor]:
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    return angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)


def test_rotary_positions_may_come_before_or_after_for_p_2_only() -> None:
    q, k, v = inputs(9, HEADS)
    turned = rotate(q, tables(9)), rotate(k, tables(9))
    for p, is_same in ((2.0, True), (3.0, False)):
        before, after = qk_attention(*turned, v, 5.0, p=p), qk_attention(q, k, v, 5.0, p=p, rotary=tables(9))
        assert torch.allclose(before, after, atol=1e-5) is is_same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [2.0, 3.0])
def test_both_layouts_give_the_same_for_any_kernel(p: float, dtype: torch.dtype) -> None:
    """Also where length and heads are as many, so that a guess from shapes would be wrong half of the time."""
    q, k, v = torch.randn(3, 2, HEADS, HEADS, HEAD_DIM).to(dtype)
    g, rotary = torch.linspace(1, 4, HEADS), tables(HEADS)
    ready = normalize_qk(q, k, g, p, rotary=rotary)
    turned = normalize_qk(q.transpose(1, 2), k.transpose(1, 2), g, p, layout="blhd", rotary=rotary)
    for ours, theirs in zip(turned, ready, strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours.transpose(1, 2), theirs)
    expected = F.scaled_dot_product_attention(*ready, v, scale=1.0)
    assert torch.equal(qk_attention(q, k, v, g, p=p, rotary=rotary), expected)
    with pytest.raises(ValueError, match='layout must be "bhld" or "blhd"'):
        normalize_qk(q, k, g, layout="bshd")  # type: ignore[arg-type]


def test_memory_grows_linearly_with_length() -> None:
    q, k, v = (torch.randn(1, 1, 512, 16, requires_grad=True) for _ in range(3))
    with Watch() as watch:
        qk_attention(q, k, v, torch.tensor(5.0, requires_grad=True), is_causal=True).sum().backward()
    assert watch.largest <= q.nbytes


def test_autocast_runs_in_half_precision_and_g_stays_wide() -> None:
    q, k, v = inputs(9, HEADS)
    g = torch.tensor(5.0, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = qk_attention(q, k, v, g)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.double(), reference.attention(q, k, v, g, 2.0), atol=3e-2)
    (dg,) = torch.autograd.grad(out.float().sum(), g)
    assert dg.dtype == torch.float32


@pytest.mark.parametrize("run", [qk_attention_weights, torch.compile(qk_attention_weights, backend="eager")])
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_autocast_leaves_the_weights_exact(run: Callable[..., Tensor], dtype: torch.dtype, kv_heads: int) -> None:
    """They are for looking at, from logits in float32."""
    q, k, _ = inputs(9, kv_heads, dtype)
    with torch.autocast("cpu", torch.bfloat16):
        weights = run(q, k, torch.tensor(12.0), enable_gqa=True)
    torch.testing.assert_close(weights, qk_attention_weights(q, k, torch.tensor(12.0), enable_gqa=True))


@pytest.mark.parametrize("run", [qk_attention, torch.compile(qk_attention, backend="eager")])
@pytest.mark.parametrize("hidden", [False, True], ids=["numbers", "NaN"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_under_autocast_the_result_has_the_type_of_torchs(
    run: Callable[..., Tensor], dtype: torch.dtype, dropout: float, hidden: bool
) -> None:
    q, k, v = constants(HEADS, dtype)
    q[0, 1, 4] = math.nan if hidden else 0.0
    with torch.autocast("cpu", torch.bfloat16):
        expected = F.scaled_dot_product_attention(q, k, v)
        assert run(q, k, v, 5.0, dropout_p=dropout).dtype == expected.dtype


class TestBadInput:
    @pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
    def test_torchs_scale_is_not_g(self, p: float) -> None:
        """The obvious edit of a call of torch's attention: it would give all keys nearly the same weight."""
        q, k, v = inputs(9, HEADS)
        for call in (partial(qk_attention, q, k, v), partial(qk_attention_weights, q, k), partial(normalize_qk, q, k)):
            with pytest.raises(
                ValueError, match=r"scale is g, .* and not torch's 1/√head_dim: with 0\.25 all keys get"
            ):
                call(HEAD_DIM**-0.5, p=p)
            call(torch.tensor(HEAD_DIM**-0.5), p=p)
            call(max(1.0, comparable_scale(p, HEAD_DIM, 1.0)), p=p)

    def test_a_start_below_1_may_be_right_beyond_p_2(self) -> None:
        start = comparable_scale(math.inf, 64, 8.0)
        assert start < 1
        normalize_qk(torch.randn(1, 1, 3, 64), torch.randn(1, 1, 3, 64), start, math.inf)

    @pytest.mark.parametrize("shape", [(2, 13), (13, 9), (2, 9, 13), (1, 2, 4, 9, 13)], ids=str)
    @pytest.mark.parametrize("is_causal", [True, False])
    def test_a_mask_that_does_not_fit_is_told_how_to(self, shape: tuple[int, ...], is_causal: bool) -> None:
        q, k, v = inputs(13, HEADS)
        mask, module = torch.ones(shape, dtype=torch.bool), QKNormAttention(64, HEADS, length_scaling="log")
        sentence = re.escape(f"attn_mask of shape {shape} is not broadcast to (batch, heads, queries, keys)")
        sentence += r".* pass a mask of \(batch, keys\) as mask\[:, None, None, :\]"
        with pytest.raises(ValueError, match=sentence):
            qk_attention(q, k, v, 5.0, attn_mask=mask, is_causal=is_causal)
        with pytest.raises(ValueError, match=sentence):
            qk_attention_weights(q, k, 5.0, attn_mask=mask, is_causal=is_causal)
        with pytest.raises(ValueError, match=sentence):
            module(torch.randn(2, 9, 64), torch.randn(2, 13, 64), attn_mask=mask, is_causal=is_causal)

    @pytest.mark.parametrize(
        ("changed", "sentence"),
        [
            ({"p": 0.9}, "p must be a number"),
            ({"key": torch.randn(2, HEADS, 9, 8)}, "differ in head_dim: 16 and 8"),
            ({"query": torch.randn(9, HEAD_DIM)}, "must be (..., heads, length, head_dim)"),
            ({"scale": torch.ones(3)}, "scale must have shape (), (1,) or (4,), one per head"),
            ({"kv_heads": 2}, "query has 4 heads, key 2 and value 2: fewer key and value heads need enable_gqa=True"),
            ({"kv_heads": 3, "enable_gqa": True}, "must divide those of the query"),
        ],
    )
    @pytest.mark.parametrize("dropout", [0.0, 0.3])
    def test_what_does_not_fit_is_a_sentence(self, dropout: float, changed: dict[str, Any], sentence: str) -> None:
        query, key, value = inputs(9, changed.get("kv_heads", HEADS))
        arguments: dict[str, Any] = {"query": query, "key": key, "scale": 5.0} | changed
        arguments.pop("kv_heads", None)
        with pytest.raises(ValueError, match=re.escape(sentence)):
            qk_attention(value=value, dropout_p=dropout, **arguments)
        with pytest.raises(ValueError, match=re.escape(sentence)):
            qk_attention_weights(**arguments)

    def test_whole_numbers_are_refused(self) -> None:
        tensor = torch.ones(1, 1, 2, 4, dtype=torch.long)
        with pytest.raises(TypeError, match="floating-point"):
            qk_attention(tensor, tensor, tensor, 5.0)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.complex64])
    @pytest.mark.parametrize("is_causal", [True, False])
    def test_masks_are_boolean_or_added(self, is_causal: bool, dtype: torch.dtype) -> None:
        q, k, v = inputs(9, HEADS)
        options: dict[str, Any] = {"attn_mask": torch.ones(9, 9, dtype=dtype), "is_causal": is_causal}
        sentence = f"attn_mask must be boolean or floating-point, not {dtype}"
        with pytest.raises(TypeError, match=sentence):
            qk_attention_weights(q, k, 5.0, **options)
        for dropout in (0.0, 0.3):
            with pytest.raises(TypeError, match=sentence):
                qk_attention(q, k, v, 5.0, dropout_p=dropout, **options)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("dropout", [-0.1, 1.5, math.nan])
    def test_dropout_is_a_share(self, dropout: float, dtype: torch.dtype) -> None:
        q, k, v = (tensor.to(dtype) for tensor in inputs(9, HEADS))
        with pytest.raises(ValueError, match=f"dropout_p must be between 0 and 1, not {dropout}"):
            qk_attention(q, k, v, 5.0, dropout_p=dropout)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_single_key_head_is_broadcast(dropout: float) -> None:
    q, k, v = inputs(9, 1)
    torch.manual_seed(1)
    grouped = qk_attention(q, k, v, 5.0, dropout_p=dropout, enable_gqa=True)
    torch.manual_seed(1)
    assert torch.allclose(qk_attention(q, k, v, 5.0, dropout_p=dropout), grouped, atol=1e-6)


def constants(kv_heads: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [tensor.detach() for tensor in inputs(9, kv_heads, dtype)]


class TestNan:
    """torch's fused attention on a CPU answers zeros for a query of NaN."""

    @pytest.mark.parametrize("dropout", [0.0, 0.3])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_in_a_query(self, dtype: torch.dtype, dropout: float) -> None:
        q, k, v = constants(HEADS, dtype)
        q[0, 1, 4, 2] = math.nan
        result = qk_attention(q, k, v, 5.0, dropout_p=dropout).isnan()
        assert result[0, 1, 4].all()
        assert int(result.sum()) == result.shape[-1]

    @pytest.mark.parametrize("dropout", [0.0, 0.3])
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(), (HEADS,)])
    def test_in_g(self, shape: tuple[int, ...], dtype: torch.dtype, dropout: float) -> None:
        q, k, v = constants(HEADS, dtype)
        q[0, 0, 0] = 0
        g = torch.full(shape, math.nan, requires_grad=True)
        out = qk_attention(q, k, v, g, dropout_p=dropout)
        assert out.isnan().all()
        assert torch.autograd.grad(out.sum(), g)[0].isnan().all()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_in_the_only_key_that_a_query_sees(self, dtype: torch.dtype) -> None:
        q, k, v = constants(HEADS, dtype)
        k[0, 1, 0] = math.nan
        assert qk_attention(q, k, v, 5.0, is_causal=True)[0, 1].isnan().all()

    @pytest.mark.parametrize("floats", [False, True])
    def test_beside_a_mask_and_shared_heads(self, floats: bool) -> None:
        q, k, v = constants(2)
        q[0, 1, 4] = math.nan
        visible = torch.rand(9, 9) < 0.8
        mask = torch.zeros(9, 9).masked_fill(~visible, -math.inf) if floats else visible
        result = qk_attention(q, k, v, 5.0, attn_mask=mask, enable_gqa=True)
        assert result[0, 1, 4].isnan().all()
        assert int(result.isnan().sum()) == result.shape[-1]

    def test_a_query_that_sees_nothing_stays_zero_beside_it(self) -> None:
        q, k, v = constants(HEADS)
        q[0, 1, 4] = math.nan
        mask = torch.ones(9, 9, dtype=torch.bool)
        mask[2] = False
        assert not qk_attention(q, k, v, 5.0, attn_mask=mask)[:, :, 2].any()


def compiled_attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    torch.compiler.reset()
    function: Callable[..., Tensor] = torch.compile(attend, fullgraph=True, backend="eager")
    return function(q, k, v, 0.25)


class TestNanInCompiledCode:
    @pytest.mark.parametrize(("where", "dtype"), [(0, torch.float32), (1, torch.float16)], ids=["query", "key"])
    def test_it_fills_the_whole_output(self, where: int, dtype: torch.dtype) -> None:
        tensors = constants(HEADS, dtype)
        tensors[where][0, 1, 4, 2] = math.nan
        assert compiled(*tensors).isnan().all()

    def test_in_g_it_fills_the_whole_output(self) -> None:
        torch.compiler.reset()
        q, k, v = constants(HEADS)
        g = torch.tensor([math.nan, 1.0, 1.0, 1.0])
        assert torch.compile(qk_attention, fullgraph=True, backend="eager")(q, k, v, g).isnan().all()

    def test_a_sum_beyond_half_precision_is_not_nan(self) -> None:
        """The first entries of 8,192 normalised queries, each about 12, add up to more than 65,504."""
        q, v = torch.randn(4, 8, 256, 16).half(), torch.randn(4, 8, 256, 16).half()
        q[..., 0] = 60
        torch.compiler.reset()
        compiled = torch.compile(qk_attention, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(q, q, v, 12.0), qk_attention(q, q, v, 12.0))

    def test_infinities_are_as_in_torch(self) -> None:
        q, k, v = constants(HEADS)
        q[0, 1, 4, 0], q[1, 2, 3, 0] = math.inf, -math.inf
        expected = F.scaled_dot_product_attention(q, k, v, scale=0.25)
        assert 0 < int(expected.isnan().sum()) < expected.numel()
        torch.testing.assert_close(compiled_attend(q, k, v), expected, equal_nan=True)


class TestTensorsWithoutValues:
    """Whoever asks for shapes only, or writes down what is computed, gets an answer, as from torch's attention."""

    @pytest.mark.parametrize("dropout", [0.0, 0.3])
    def test_fake_tensors_have_gradients(self, dropout: float) -> None:
        with FakeTensorMode():
            q, k, v = (torch.randn(2, HEADS, 9, HEAD_DIM, requires_grad=True) for _ in range(3))
            qk_attention(q, k, v, torch.ones(HEADS), dropout_p=dropout).sum().backward()
        assert q.grad is not None
        assert q.grad.shape == q.shape

    def test_a_mode_sees_of_fake_tensors_the_operators_that_run_on_real_ones(self) -> None:
        def seen() -> list[str]:
            with Watch() as watch:
                qk_attention(*inputs(9, HEADS), 5.0)
            return [name for name in watch.seen if name.startswith("qknorm::") or "scaled_dot_product" in name]

        with FakeTensorMode():
            fake = seen()
        assert fake == seen()
        assert len(fake) == 3

    @pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
    @pytest.mark.parametrize("pre_dispatch", [True, False])
    def test_what_make_fx_wrote_computes_the_same(self, tracing_mode: Any, pre_dispatch: bool) -> None:
        q, k, v = constants(HEADS)
        g = torch.ones(HEADS)
        trace = make_fx(lambda *tensors: qk_attention(*tensors), tracing_mode=tracing_mode, pre_dispatch=pre_dispatch)
        graph = trace(q, k, v, g)
        q = torch.randn_like(q)
        torch.testing.assert_close(graph(q, k, v, g), qk_attention(q, k, v, g))
        q[0, 1, 4] = math.nan
        assert graph(q, k, v, g).isnan().all()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_gradient_of_zeros_without_memory_gives_zeros(dropout: float) -> None:
    q, k, v = (tensor.requires_grad_() for tensor in inputs(9, HEADS))
    out = qk_attention(q, k, v, 5.0, dropout_p=dropout)
    for gradient in torch.autograd.grad(out, (q, k, v), torch._efficientzerotensor(out.shape)):
        assert torch.equal(gradient, torch.zeros_like(gradient))
