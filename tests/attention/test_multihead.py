"""MultiheadAttention is torch's own module in all but the norms.

Its own way through `forward`, with norms that do nothing, is held against torch's module over torch's options.
"""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

import qknorm
from qknorm.attention.norms import LpKind
from tests.attention import reference

DIM, HEADS, BATCH, QUERIES, KEYS = 16, 4, 3, 5, 7

OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_first": True},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True, "batch_first": True},
    {"kdim": 6, "vdim": 10},
    {"kdim": 6, "vdim": 10, "bias": False, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
]
NORMS: list[dict[str, Any]] = [
    {},
    {"p": 3.0, "per_head_scale": True},
    {"p": math.inf, "scale_init": 2.0},
    {"qk_norm": "rms"},
    {"qk_norm": "layer", "eps": 1e-3},
]


def named(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items()) or "default"


all_options = pytest.mark.parametrize("options", OPTIONS, ids=named)
all_norms = pytest.mark.parametrize("norm", NORMS, ids=named)


def ours_and_theirs(**options: Any) -> tuple[qknorm.MultiheadAttention, nn.MultiheadAttention]:
    """Ours, with norms that do nothing, and torch's, with the same weights, in float64."""
    theirs = nn.MultiheadAttention(DIM, HEADS, dtype=torch.float64, **options)
    return like(theirs, **options), theirs


def like(theirs: nn.MultiheadAttention, **options: Any) -> qknorm.MultiheadAttention:
    ours = qknorm.MultiheadAttention(DIM, HEADS, dtype=torch.float64, qk_norm="rms", **options)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    ours.q_norm = ours.k_norm = nn.Identity()
    return ours


def inputs(attention: nn.MultiheadAttention, batched: bool = True) -> list[Tensor]:
    """A query, keys and values in the layout of the module."""
    sides = [(QUERIES, DIM), (KEYS, attention.kdim), (KEYS, attention.vdim)]
    batch_first = [torch.randn(BATCH, *side, dtype=torch.float64) for side in sides]
    if not batched:
        return [side[0] for side in batch_first]
    return batch_first if attention.batch_first else [side.transpose(0, 1) for side in batch_first]


def forbidden(*shape: int) -> Tensor:
    """A mask of booleans that leaves every query the first key."""
    mask = torch.rand(shape) < 0.4
    mask[..., 0] = False
    return mask


def floats(mask: Tensor) -> Tensor:
    return torch.randn(mask.shape, dtype=torch.float64).masked_fill(mask, -math.inf)


def answer(module: nn.Module, sides: tuple[Tensor, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """What a module returns, and the gradients of all that it is made from."""
    leaves = [side.detach().requires_grad_() for side in sides]
    module.zero_grad()
    out, weights = module(*leaves, **given)
    (out.sin().sum() + (0 if weights is None else weights.cos().sum())).backward()
    named = dict(enumerate(leaves)) | dict(module.named_parameters())
    return (out, weights), {str(name): leaf.grad for name, leaf in named.items() if leaf.grad is not None}


@st.composite
def calls(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[Tensor, ...], dict[str, Any]]:
    """Options, sides and arguments of a call, of any size and not always such as torch takes."""
    torch.manual_seed(draw(st.integers(0, 99)))
    some, maybe = st.integers(1, 3), st.booleans()
    batch, queries, keys = draw(some), draw(some), draw(some)
    options: dict[str, Any] = {name: draw(maybe) for name in ("bias", "add_bias_kv", "add_zero_attn", "batch_first")}
    options |= {name: draw(st.sampled_from([None, 6, DIM])) for name in ("kdim", "vdim")}
    widths = (DIM, *(draw(st.sampled_from([options[name] or DIM, 6])) for name in ("kdim", "vdim")))
    shapes = zip((queries, keys, keys), widths, strict=True)
    sides = [torch.randn(batch, *shape, dtype=torch.float64) for shape in shapes]
    has_batch = draw(maybe)
    if not has_batch:
        sides = [side[0] for side in sides]
    elif not options["batch_first"]:
        sides = [side.transpose(0, 1) for side in sides]
    sizes = [(queries, keys), ((batch if has_batch else 1) * HEADS, queries, keys), (keys, queries)]
    kinds = st.sampled_from(
        [None, torch.clone, floats, lambda mask: mask.mT.contiguous().mT if mask.dim() > 1 else mask]
    )
    given: dict[str, Any] = {name: draw(maybe) for name in ("need_weights", "average_attn_weights")}
    for name, possible in (("attn_mask", sizes), ("key_padding_mask", [(batch, keys) if has_batch else (keys,)])):
        shape, change = draw(st.sampled_from(possible)), draw(kinds)
        given[name] = None if change is None else change(forbidden(*shape))
    sides = [sides[0]] * 3 if draw(maybe) else sides
    return options, tuple(sides), given


@hypothesis.settings(max_examples=200)
@hypothesis.given(calls())
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_whatever_is_asked_of_it_the_answer_is_that_of_torch(
    call: tuple[dict[str, Any], tuple[Tensor, ...], dict[str, Any]],
) -> None:
    options, sides, given = call
    ours, theirs = ours_and_theirs(**options)
    try:
        expected = answer(theirs, sides, given)
    except (AssertionError, RuntimeError) as error:
        with pytest.raises(type(error)):
            ours(*sides, **given)
    else:
        torch.testing.assert_close(answer(ours, sides, given), expected)


@all_options
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_the_hint_that_a_mask_is_causal_changes_nothing(
    options: dict[str, Any], need_weights: bool, padded: bool
) -> None:
    ours, theirs = ours_and_theirs(**options)
    query, key, value = inputs(theirs)
    length = 1 if theirs.batch_first else 0
    key, value = (side.narrow(length, 0, QUERIES) for side in (key, value))
    causal = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    given = {"attn_mask": causal, "need_weights": need_weights}
    if padded:
        given["key_padding_mask"] = forbidden(BATCH, QUERIES)
    hinted = ours(query, key, value, is_causal=True, **given)
    torch.testing.assert_close(hinted, theirs(query, key, value, **given))


def test_masks_of_two_types_are_warned_of_as_torch_does() -> None:
    ours, theirs = ours_and_theirs()
    given = {"attn_mask": floats(forbidden(QUERIES, KEYS)), "key_padding_mask": forbidden(BATCH, KEYS)}
    sides = inputs(theirs)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        result = ours(*sides, **given)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        torch.testing.assert_close(result, theirs(*sides, **given))


def wrong_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments that replace good ones."""
    three, two = torch.randn(QUERIES, BATCH, DIM), torch.randn(QUERIES, DIM)
    yield "key without a batch", {"key": two}
    yield "value without a batch", {"value": two}
    yield "key with a batch", {"query": two, "value": two}
    yield "query of one dimension", {"query": torch.randn(DIM)}
    yield "query of four dimensions", {"query": three[None]}
    yield "query of another width", {"query": torch.randn(QUERIES, BATCH, DIM + 1)}
    yield "key of another width", {"key": torch.randn(QUERIES, BATCH, DIM + 1)}
    yield "key and value of other widths", dict.fromkeys(("key", "value"), torch.randn(QUERIES, BATCH, DIM + 1))
    yield "value of another length", {"value": three[1:]}
    yield "keys of one batch entry", {"key": three[:, :1], "value": three[:, :1]}
    yield "padding of one dimension", {"key_padding_mask": torch.zeros(QUERIES, dtype=torch.bool)}
    yield "padding for fewer keys", {"key_padding_mask": torch.zeros(BATCH, QUERIES - 1, dtype=torch.bool)}
    yield "padding for another batch", {"key_padding_mask": torch.zeros(BATCH + 1, QUERIES, dtype=torch.bool)}
    yield "padding of integers", {"key_padding_mask": torch.zeros(BATCH, QUERIES, dtype=torch.uint8)}
    yield "mask of integers", {"attn_mask": torch.zeros(QUERIES, QUERIES, dtype=torch.int64)}
    yield "mask of one dimension", {"attn_mask": torch.zeros(QUERIES)}
    yield "mask of four dimensions", {"attn_mask": torch.zeros(BATCH, HEADS, QUERIES, QUERIES)}
    yield "mask for fewer keys", {"attn_mask": torch.zeros(QUERIES, QUERIES - 1)}
    yield "mask for fewer heads", {"attn_mask": torch.zeros(BATCH, QUERIES, QUERIES)}
    yield "a hint without a mask", {"is_causal": True}
    yield "a hint without a mask, no weights", {"is_causal": True, "need_weights": False}
    unbatched = dict.fromkeys(("query", "key", "value"), two)
    yield "padding with a batch", {**unbatched, "key_padding_mask": torch.zeros(1, QUERIES, dtype=torch.bool)}
    yield "padding of another length", {**unbatched, "key_padding_mask": torch.zeros(QUERIES + 1, dtype=torch.bool)}
    yield "mask of another number of heads", {**unbatched, "attn_mask": torch.zeros(HEADS + 1, QUERIES, QUERIES)}


@pytest.mark.parametrize("wrong", [pytest.param(wrong, id=name) for name, wrong in wrong_calls()])
def test_a_wrong_argument_is_the_error_of_torch(wrong: dict[str, Any]) -> None:
    x = torch.randn(QUERIES, BATCH, DIM)
    given = {"query": x, "key": x.clone(), "value": x.clone(), **wrong}
    actual, expected = (error_of(module, given) for module in (ours_of({}), nn.MultiheadAttention(DIM, HEADS)))
    assert type(actual) is type(expected)
    if "mat1 and mat2" not in str(expected) and "invalid for input of size" not in str(expected):
        assert str(actual) == str(expected)  # others are torch's views and products at work, and speak of those


def ours_of(norm: dict[str, Any]) -> qknorm.MultiheadAttention:
    return qknorm.MultiheadAttention(DIM, HEADS, **norm)


def error_of(module: nn.Module, given: dict[str, Any]) -> Exception:
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        module(**given)
    return caught.value


@pytest.mark.parametrize("wrong", [(0, 4), (16, 0), (16, 3), (-16, 4)])
def test_wrong_sizes_are_the_error_of_torch(wrong: tuple[int, int]) -> None:
    with pytest.raises((ValueError, AssertionError)) as expected:
        nn.MultiheadAttention(*wrong)
    with pytest.raises(type(expected.value)) as actual:
        qknorm.MultiheadAttention(*wrong)
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize(
    "norm",
    [
        *(
            {"p": p, "scale_init": 5.0, "per_head_scale": each}
            for p in (1.0, 2.0, 3.0, math.inf)
            for each in (True, False)
        ),
        {"qk_norm": "rms", "eps": 1e-3},
        {"qk_norm": "layer", "eps": 1e-3},
    ],
    ids=named,
)
def test_the_logits_are_those_of_normalised_queries_and_keys(norm: dict[str, Any]) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, dtype=torch.float64, **norm)
    query, key, value = inputs(attention)
    q, k, v = (
        F.linear(side, weight).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for side, weight in zip((query, key, value), attention.in_proj_weight.chunk(3), strict=True)
    )
    if "p" in norm:
        nn.init.uniform_(scale_of(attention), 1, 5)
        expected = reference.weights(q, k, scale_of(attention), norm["p"])
    else:
        of_torch = F.rms_norm if norm["qk_norm"] == "rms" else F.layer_norm
        q, k = (of_torch(side, (DIM // HEADS,), eps=1e-3) for side in (q, k))
        expected = (q @ k.mT / math.sqrt(DIM // HEADS)).softmax(-1)
    mixed = attention.out_proj((expected @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(query, key, value, average_attn_weights=False), (mixed, expected))
    torch.testing.assert_close(attention(query, key, value, need_weights=False)[0], mixed)


def scale_of(attention: qknorm.MultiheadAttention) -> Tensor:
    scale = attention.q_norm.scale
    assert isinstance(scale, Tensor)
    return scale


@pytest.mark.parametrize("norm", [{}, {"qk_norm": "layer"}], ids=named)
def test_a_key_of_zeros_has_the_logit_zero(norm: dict[str, Any]) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, add_zero_attn=True, dtype=torch.float64, **norm)
    for name, parameter in attention.k_norm.named_parameters():
        nn.init.ones_(parameter) if name == "bias" else None
    sides = inputs(attention)
    weights = attention(*sides, average_attn_weights=False)[1]
    attention.add_zero_attn = False
    without = attention(*sides, average_attn_weights=False)[1]
    exponentials = without / without.sum(-1, keepdim=True)
    rest = weights[..., :-1].sum(-1, keepdim=True)
    torch.testing.assert_close(weights[..., :-1], exponentials * rest)
    assert (weights[..., -1] > 0).all()


def test_the_bias_of_keys_is_normalised_as_they_are() -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, add_bias_kv=True, dtype=torch.float64)
    sides = inputs(attention)
    before, _ = attention(*sides)
    assert attention.bias_k is not None
    with torch.no_grad():
        attention.bias_k *= 100
    torch.testing.assert_close(attention(*sides)[0], before)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_may_attend_to_nothing_gets_zeros(need_weights: bool) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS)
    x = torch.randn(QUERIES, BATCH, DIM)
    mask = torch.zeros(QUERIES, QUERIES, dtype=torch.bool)
    mask[2] = True
    out, weights = attention(x, x, x, attn_mask=mask, need_weights=need_weights)
    assert out.isfinite().all()
    assert torch.equal(out[2], attention.out_proj.bias.expand(BATCH, -1))
    if need_weights:
        assert torch.equal(weights[:, 2], torch.zeros(BATCH, QUERIES))


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_is_of_the_weights_and_in_training_alone(need_weights: bool) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, dropout=1.0)
    x = torch.randn(QUERIES, BATCH, DIM)
    out, weights = attention(x, x, x, need_weights=need_weights)
    assert torch.equal(out, attention.out_proj.bias.expand_as(out))
    if need_weights:
        assert not weights.any()
    assert not torch.equal(attention.eval()(x, x, x)[0], out)


@all_norms
def test_the_state_dict_is_that_of_torch_but_for_the_norms(norm: dict[str, Any]) -> None:
    for options in OPTIONS:
        theirs = nn.MultiheadAttention(DIM, HEADS, **options)
        attention = qknorm.MultiheadAttention(DIM, HEADS, **options, **norm)
        missing, unexpected = attention.load_state_dict(theirs.state_dict(), strict=False)
        assert not unexpected
        assert {name.split(".")[0] for name in missing} == {"q_norm"} | ({"k_norm"} if "qk_norm" in norm else set())
        qknorm.MultiheadAttention(DIM, HEADS, qk_norm=None, **options).load_state_dict(theirs.state_dict())


def test_it_starts_as_torch_does_and_g_where_it_is_told() -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(DIM, HEADS, add_bias_kv=True).state_dict()
    torch.manual_seed(0)
    attention = qknorm.MultiheadAttention(DIM, HEADS, add_bias_kv=True, scale_init=3.5)
    assert all(torch.equal(attention.state_dict()[name], start) for name, start in theirs.items())
    assert scale_of(attention).tolist() == [3.5]
    assert scale_of(ours_of({"per_head_scale": True})).shape == (HEADS,)
    assert scale_of(ours_of({"p": 3.0})).item() == pytest.approx(qknorm.comparable_scale(3.0, 4, 2.0))


def without_memory(options: dict[str, Any]) -> qknorm.MultiheadAttention:
    """NaN in all parameters, so that none can be forgotten."""
    attention = qknorm.MultiheadAttention(DIM, HEADS, device="meta", **options).to_empty(device="cpu")
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.fill_(math.nan)
    return attention


def reset(module: nn.Module) -> None:
    if callable(own := getattr(module, "reset_parameters", None)):
        own()


@pytest.mark.parametrize("options", [*OPTIONS, *({"add_bias_kv": True} | norm for norm in NORMS)], ids=named)
def test_a_module_without_memory_is_given_its_start(options: dict[str, Any]) -> None:
    """`apply` begins with children, which is the order in which torch's constructor draws."""
    attention = without_memory(options)
    torch.manual_seed(0)
    attention.apply(reset)
    torch.manual_seed(0)
    expected = qknorm.MultiheadAttention(DIM, HEADS, **options)
    torch.testing.assert_close(attention.state_dict(), expected.state_dict(), rtol=0, atol=0)


def test_its_output_projection_is_torchs() -> None:
    assert isinstance(ours_of({}).out_proj, type(nn.MultiheadAttention(DIM, HEADS).out_proj))


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=named)
@pytest.mark.parametrize("need_weights", [True, False])
def test_values_are_normalised_by_a_kind_that_does(need_weights: bool, options: dict[str, Any]) -> None:
    kind = LpKind(normalize_value=True)
    attention = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, qk_norm=kind, **options)
    plain = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, **options)
    assert attention.state_dict().keys() == plain.state_dict().keys()
    plain.load_state_dict(attention.state_dict())
    sides = inputs(attention)
    sides = [side.float() for side in sides]
    out, _ = attention(*sides, need_weights=need_weights)
    _, weights = plain(*sides, average_attn_weights=False)
    _, _, values = plain._heads(sides[0], *plain._with_biases(*plain._projected(*sides)[1:]))
    mixed = weights @ qknorm.lp_normalize(values)
    torch.testing.assert_close(out, attention.out_proj(mixed.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("change", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_it_can_be_copied_and_pickled(change: Callable[[nn.Module], nn.Module]) -> None:
    attention, x = ours_of({"per_head_scale": True}), torch.randn(QUERIES, BATCH, DIM)
    assert torch.equal(change(attention)(x, x, x)[0], attention(x, x, x)[0])


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, dropout=0.0, batch_first=True, **options)
    layer.self_attn = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, scale_init=9.0)
    return layer


def test_torchs_fast_path_is_taken_without_norms_alone() -> None:
    layer, x = encoder_layer().eval(), torch.randn(BATCH, KEYS, DIM)
    plain = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, qk_norm=None).eval()
    with (
        torch.no_grad(),
        mock.patch("torch._transformer_encoder_layer_fwd") as of_layers,
        mock.patch("torch._native_multi_head_attention") as of_attention,
    ):
        copy.deepcopy(layer)(x)
        layer.self_attn(x, x, x)
        assert not of_layers.called
        assert not of_attention.called
        plain(x, x, x)
        assert of_attention.called


def test_without_the_hook_torchs_fast_path_is_an_error() -> None:
    layer = encoder_layer().eval()
    layer.self_attn._forward_pre_hooks.clear()
    with torch.no_grad(), pytest.raises(RuntimeError, match="without query-key normalisation"):
        layer(torch.randn(BATCH, KEYS, DIM))


@pytest.mark.parametrize("replaced_before", [True, False])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_in_an_encoder_padding_changes_nothing(replaced_before: bool) -> None:
    """torch's encoder gives its layers nested tensors, where padding ends each sequence."""
    layer = encoder_layer() if replaced_before else nn.TransformerEncoderLayer(DIM, HEADS, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    if not replaced_before:
        for each in encoder.layers:
            each.self_attn = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True)
    encoder.eval()
    x, padding = torch.randn(BATCH, KEYS, DIM), torch.zeros(BATCH, KEYS, dtype=torch.bool)
    padding[1, 4:] = True
    expected = encoder(x, src_key_padding_mask=padding)
    with torch.no_grad():
        actual = encoder(x, src_key_padding_mask=padding)
    torch.testing.assert_close(actual[~padding], expected[~padding])


@pytest.mark.parametrize("batch_first", [True, False])
def test_in_a_whole_transformer_without_norms_it_is_torchs(batch_first: bool) -> None:
    theirs = nn.Transformer(DIM, HEADS, 1, 1, 8, 0.0, batch_first=batch_first, dtype=torch.float64)
    ours = copy.deepcopy(theirs)
    for layer in (*ours.encoder.layers, *ours.decoder.layers):
        for name in {"self_attn", "multihead_attn"} & dict(layer.named_children()).keys():
            setattr(layer, name, like(getattr(layer, name), batch_first=batch_first))
    source, target = torch.randn(2, BATCH, KEYS, DIM, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(KEYS if batch_first else BATCH, dtype=torch.float64)
    actual, expected = (model(source, target, tgt_mask=causal, tgt_is_causal=True) for model in (ours, theirs))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}], ids=named)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_sequences_attend_one_by_one(layout: torch.layout, options: dict[str, Any]) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, dtype=torch.float64, **options)
    queries, keys = ([torch.randn(n, DIM, dtype=torch.float64) for n in lengths] for lengths in ((4, 6), (7, 2)))
    nested_queries, nested_keys = (torch.nested.nested_tensor(each, layout=layout) for each in (queries, keys))
    out, weights = attention(nested_queries, nested_keys, nested_keys)
    assert out.is_nested
    torch.testing.assert_close((nested_queries + out).to_padded_tensor(0.0)[0, :4] - queries[0], out.unbind()[0])
    for i, (query, key) in enumerate(zip(queries, keys, strict=True)):
        expected, expected_weights = attention(query, key, key)
        torch.testing.assert_close(out.unbind()[i], expected)
        torch.testing.assert_close(weights[i].sum(), expected_weights.sum())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_weights_are_padded_as_torch_pads_them() -> None:
    ours, theirs = (module.eval() for module in ours_and_theirs(batch_first=True))
    nested = torch.nested.nested_tensor([torch.randn(n, DIM, dtype=torch.float64) for n in (4, 6)])
    with torch.no_grad():
        (actual, actual_weights), (expected, expected_weights) = (module(*[nested] * 3) for module in (ours, theirs))
    torch.testing.assert_close(actual_weights, expected_weights)
    torch.testing.assert_close(actual.to_padded_tensor(0.0), expected.to_padded_tensor(0.0))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_where_they_have_no_meaning() -> None:
    nested, shorter = (
        torch.nested.nested_tensor([torch.randn(n, DIM) for n in lengths]) for lengths in ((4, 6), (3, 6))
    )
    attention = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True)
    mask, x = torch.zeros(6, 6), torch.randn(2, 6, DIM)
    wrong: list[tuple[tuple[Tensor, Tensor, Tensor], dict[str, Tensor], str]] = [
        ((nested, nested, nested), {"attn_mask": mask}, "a mask was given"),
        ((nested, x, x), {}, "not all nested"),
        ((nested, nested, shorter), {}, "different lengths"),
    ]
    for sides, given, sentence in wrong:
        with pytest.raises(AssertionError, match=sentence):
            attention(*sides, **given)
    with pytest.raises(AssertionError, match="batch_first was not True"):
        ours_of({})(nested, nested, nested)
    empty = torch.nested.nested_tensor([])
    with pytest.raises(AssertionError, match="received 1-D query tensor"):
        attention(empty, empty, empty)


@pytest.mark.parametrize("norm", [{}, {"qk_norm": "rms"}], ids=named)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_results_have_the_dtype_of_the_module(norm: dict[str, Any], dtype: torch.dtype) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, dtype=dtype, add_bias_kv=True, **norm)
    x = torch.randn(QUERIES, BATCH, DIM, dtype=dtype)
    assert all(parameter.dtype is dtype for parameter in attention.parameters())
    out, weights = attention(x, x, x, key_padding_mask=forbidden(BATCH, QUERIES))
    assert out.dtype is weights.dtype is dtype
    assert attention(x, x, x, attn_mask=forbidden(QUERIES, QUERIES), need_weights=False)[0].dtype is dtype


@pytest.mark.parametrize("norm", [{}, {"qk_norm": "layer"}], ids=named)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("of_floats", [True, False])
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
def test_autocast_takes_it_along(norm: dict[str, Any], need_weights: bool, of_floats: bool) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, add_bias_kv=True, dropout=0.1, **norm)
    x, mask = torch.randn(QUERIES, BATCH, DIM, requires_grad=True), forbidden(BATCH, QUERIES)
    mask = floats(mask).float() if of_floats else mask
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = attention(x, x, x, key_padding_mask=mask, need_weights=need_weights)
    assert out.dtype is torch.bfloat16
    out.float().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@torch.no_grad()
def test_autocast_leaves_the_logits_of_weights_exact() -> None:
    """Projections are in bfloat16; what is made of them is rounded once more, at the end."""
    attention, x = qknorm.MultiheadAttention(DIM, HEADS, scale_init=12.0), torch.randn(QUERIES, BATCH, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        _, weights = attention(x, x, x, average_attn_weights=False)
        q, k, _ = attention._heads(*attention._projected(x, x, x))
    logits = q.double() @ k.double().transpose(-2, -1)
    torch.testing.assert_close(weights, logits.softmax(-1).bfloat16(), rtol=0.004, atol=0)


@pytest.mark.parametrize("need_weights", [True, False])
def test_it_compiles_whole(need_weights: bool) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, add_bias_kv=True, p=3.0)
    x, padding = torch.randn(BATCH, KEYS, DIM), forbidden(BATCH, KEYS)
    given = {"key_padding_mask": padding, "need_weights": need_weights}
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, x, x, **given), attention(x, x, x, **given))


@pytest.mark.slow
def test_an_encoder_compiles_whole() -> None:
    with warnings.catch_warnings(action="ignore"):
        encoder = nn.TransformerEncoder(encoder_layer(), 2).eval()
    x, padding = torch.randn(BATCH, KEYS, DIM), forbidden(BATCH, KEYS)
    compiled = torch.compile(encoder, fullgraph=True)
    torch.testing.assert_close(compiled(x, src_key_padding_mask=padding), encoder(x, src_key_padding_mask=padding))


@pytest.mark.parametrize("norm", [{}, {"qk_norm": "rms"}], ids=named)
def test_what_is_exported_computes_the_same(norm: dict[str, Any]) -> None:
    attention = qknorm.MultiheadAttention(DIM, HEADS, batch_first=True, **norm).eval()
    x, padding = torch.randn(BATCH, KEYS, DIM), forbidden(BATCH, KEYS)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    exported = torch.export.export(attention, (x, x, x, padding), dynamic_shapes=(sizes,) * 4)
    assert not any(word in str(node.target) for node in exported.graph.nodes for word in ("qknorm", "autocast"))
    x, padding = torch.randn(BATCH + 1, KEYS + 2, DIM), forbidden(BATCH + 1, KEYS + 2)
    torch.testing.assert_close(exported.module()(x, x, x, padding), attention(x, x, x, padding))


def test_an_ensemble_is_computed_by_vmap() -> None:
    ensemble = [ours_of({"per_head_scale": True}) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(ensemble)
    x = torch.randn(QUERIES, BATCH, DIM)

    def results(own: dict[str, Tensor]) -> Any:
        return torch.func.functional_call(ensemble[0], own, (x, x, x))

    expected = torch.stack([attention(x, x, x)[0] for attention in ensemble])
    torch.testing.assert_close(torch.func.vmap(results)(parameters)[0], expected)
