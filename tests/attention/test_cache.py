from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from qknorm import KeyValueCache, KeyValues, QKNormAttention, causal_mask
from qknorm.attention.cache import FixedKeyValueCache
from tests.attention.test_module import DIM, HEADS, LENGTH, all_kinds, sequence


@all_kinds
@pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 5], [LENGTH]], ids=str)
def test_decoding_in_steps_equals_decoding_at_once(kind: dict[str, Any], chunks: list[int]) -> None:
    attention = QKNormAttention(DIM, HEADS, **kind).eval()
    x = sequence()
    cache = KeyValueCache()
    with torch.no_grad():
        expected = attention(x, is_causal=True)
        steps = [attention(part, is_causal=True, cache=cache) for part in x.split(chunks, dim=1)]
    assert torch.allclose(torch.cat(steps, 1), expected, atol=1e-5)
    assert cache.length == LENGTH


@pytest.mark.parametrize("floats", [False, True])
def test_a_mask_beside_the_cache_hides_left_padding(floats: bool) -> None:
    attention = QKNormAttention(DIM, HEADS).eval()
    x = sequence()
    visible = torch.arange(LENGTH) >= torch.tensor([0, 2, 5])[:, None]
    mask: Tensor = visible[:, None, None, :]
    if floats:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    cache = KeyValueCache()
    with torch.no_grad():
        expected = attention(x, is_causal=True, attn_mask=mask)
        first = attention(x[:, :6], is_causal=True, attn_mask=mask[..., :6], cache=cache)
        rest = attention(x[:, 6:], is_causal=True, attn_mask=mask, cache=cache)
    assert torch.allclose(torch.cat([first, rest], 1), expected, atol=1e-5)


def test_beams_can_be_reordered() -> None:
    attention = QKNormAttention(DIM, HEADS, p=3.0).eval()
    x = sequence()
    rows = torch.tensor([2, 2, 0, 1])
    cache = KeyValueCache()
    with torch.no_grad():
        attention(x[:, :5], is_causal=True, cache=cache)
        cache.reorder(rows)
        actual = attention(x[rows, 5:], is_causal=True, cache=cache)
        expected = attention(x, is_causal=True)[rows, 5:]
    assert torch.allclose(actual, expected, atol=1e-5)


def test_an_empty_cache_can_be_reordered() -> None:
    KeyValueCache().reorder(torch.tensor([0, 0]))


def test_keys_are_kept_normalised_and_without_g() -> None:
    attention = QKNormAttention(DIM, HEADS, p=3.0, scale_init=50.0).eval()
    cache = KeyValueCache()
    with torch.no_grad():
        attention(sequence(), cache=cache)
        keys, _ = cache.append(attention.key_values(sequence(1)))
    assert torch.allclose(keys.norm(p=3, dim=-1), torch.ones(1), atol=1e-5)


def test_a_precomputed_memory_serves_every_step() -> None:
    attention = QKNormAttention(DIM, HEADS, num_kv_heads=2).eval()
    x, memory = sequence(), sequence(17)
    prepared = attention.key_values(memory)
    steps = [attention(step, prepared) for step in x.split(1, dim=1)]
    assert torch.allclose(torch.cat(steps, 1), attention(x, memory), atol=1e-5)


def test_long_queries_do_not_change_a_cached_answer() -> None:
    """The normalisation is not skipped behind the cache: longer inputs give the same attention."""
    attention = QKNormAttention(DIM, HEADS, bias=False).eval()
    x = sequence()
    outputs = []
    with torch.no_grad():
        for factor in (1.0, 100.0):
            attention.q_proj.weight.mul_(factor)
            attention.k_proj.weight.mul_(factor)
            cache = KeyValueCache()
            outputs.append(torch.cat([attention(step, is_causal=True, cache=cache) for step in x.split(1, dim=1)], 1))
    assert torch.allclose(outputs[0], outputs[1], atol=1e-4)


def test_training_with_a_cache_is_refused() -> None:
    with pytest.raises(RuntimeError, match="for inference"):
        QKNormAttention(DIM, HEADS)(sequence(), cache=KeyValueCache())


@pytest.mark.parametrize("length", [5, 16])
@pytest.mark.parametrize(("first", "then"), [(4, 1), (1, 4)])
def test_another_batch_size_is_refused_and_not_broadcast(first: int, then: int, length: int) -> None:
    attention = QKNormAttention(DIM, HEADS).eval()
    cache = KeyValueCache()
    with torch.no_grad():
        attention(torch.randn(first, length, DIM), cache=cache)
        with pytest.raises(ValueError, match=r"the cache holds .* reorder\(rows\) changes the batch"):
            attention(torch.randn(then, 1, DIM), cache=cache)


def test_reordering_keeps_the_room() -> None:
    attention = QKNormAttention(DIM, HEADS).eval()
    cache = KeyValueCache()
    with torch.no_grad():
        attention(sequence(3), cache=cache)
        cache.reorder(torch.tensor([0, 1, 2]))
        assert cache._room is not None
        before = cache._room.keys.data_ptr()
        attention(sequence(1), cache=cache)
    assert cache._room.keys.data_ptr() == before


@pytest.mark.parametrize("options", [{}, {"max_length": 9}, {"window": 3}], ids=str)
def test_what_is_held_goes_on_in_another_cache(options: dict[str, int]) -> None:
    attention, x = QKNormAttention(16, 2).eval(), torch.randn(2, 6, 16)
    cache, other = KeyValueCache(**options), KeyValueCache(**options)
    with torch.no_grad():
        attention(x[:, :5], is_causal=True, cache=cache)
        other.append(cache.held)
        found, expected = (attention(x[:, 5:], is_causal=True, cache=each) for each in (other, cache))
    torch.testing.assert_close(found, expected)


def test_an_empty_cache_holds_nothing() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        _ = KeyValueCache().held


def some_key_values(length: int, keys: int = 4, values: int = 4) -> KeyValues:
    return KeyValues(torch.randn(3, HEADS, length, keys), torch.randn(3, HEADS, length, values))


ANY_CACHE = pytest.mark.parametrize("options", [{}, {"window": 6}, {"max_length": 32}], ids=str)


@ANY_CACHE
def test_what_was_held_stays_as_it_was(options: dict[str, int]) -> None:
    cache, first = KeyValueCache(**options), some_key_values(3)
    cache.append(first)
    held = cache.held
    cache.crop(1)
    cache.append(some_key_values(2))
    cache.reorder(torch.tensor([2, 1, 0]))
    assert all(torch.equal(kept, given) for kept, given in zip(held, first, strict=True))


@ANY_CACHE
def test_values_may_have_another_size_than_keys(options: dict[str, int]) -> None:
    cache, first, rows = KeyValueCache(**options), some_key_values(3, 4, 6), torch.tensor([2, 0, 0])
    cache.append(first)
    cache.reorder(rows)
    keys, values = cache.held
    assert torch.equal(keys, first.keys[rows])
    assert torch.equal(values, first.values[rows])


def test_a_step_after_a_reorder_attends_to_values_of_another_size() -> None:
    first, new = some_key_values(3, 4, 6), some_key_values(1, 4, 6)
    cache, rows = KeyValueCache(), torch.tensor([2, 0, 0])
    cache.append(first)
    cache.reorder(rows)
    query = torch.randn(3, HEADS, 1, 4)
    keys, values = (torch.cat([old[rows], added], 2) for old, added in zip(first, new, strict=True))
    expected = torch.softmax(query @ keys.transpose(-1, -2), -1) @ values
    assert torch.allclose(cache.attend(query, new, 1.0), expected, atol=1e-5)


def test_values_of_a_size_that_is_not_held_are_refused() -> None:
    cache = KeyValueCache()
    cache.append(some_key_values(3, 4, 6))
    with pytest.raises(ValueError, match=r"of keys and values\) \(3, 4, 4, 6\), not \(3, 4, 4, 5\)"):
        cache.append(some_key_values(1, 4, 5))


@ANY_CACHE
@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize("halved", ["first", "then"])
@torch.no_grad()
def test_some_of_the_positions_may_come_under_autocast(options: dict[str, int], new: int, halved: str) -> None:
    attention, x, cache = QKNormAttention(DIM, HEADS), sequence(), KeyValueCache(**options)
    result = x
    for part, name in ((x[:, :4], "first"), (x[:, 4 : 4 + new], "then")):
        with torch.autocast("cpu", torch.bfloat16, enabled=name == halved):
            result = attention(part, is_causal=True, cache=cache)
    expected = attention(x[:, : 4 + new], is_causal=True)[:, 4:]
    assert torch.allclose(result.float(), expected, atol=5e-2)


class TestSubclasses:
    def test_a_subclass_with_a_max_length_is_made_of_the_fixed_cache(self) -> None:
        class OwnCache(KeyValueCache):
            pass

        class OwnFixedCache(FixedKeyValueCache):
            pass

        assert OwnCache(window=4).window == 4
        cache = OwnFixedCache(max_length=4)
        cache.append(some_key_values(3))
        assert cache.length == 3
        with pytest.raises(TypeError, match="OwnCache has a max_length, so it must be a FixedKeyValueCache"):
            OwnCache(max_length=4)

    def test_a_subclass_has_arguments_of_its_own(self) -> None:
        class NamedCache(KeyValueCache):
            def __init__(self, name: str, *, layer: int) -> None:
                super().__init__(window=layer)
                self.name = name

        cache = NamedCache("first", layer=3)
        assert (cache.name, cache.window, cache.length) == ("first", 3, 0)


def test_a_cache_is_not_for_cross_attention() -> None:
    with pytest.raises(ValueError, match="cache is for self-attention"):
        QKNormAttention(DIM, HEADS)(sequence(), sequence(), cache=KeyValueCache())


def decoded(attention: QKNormAttention, x: Tensor, cache: KeyValueCache, chunks: list[int]) -> Tensor:
    return torch.cat([attention(part, is_causal=True, cache=cache) for part in x.split(chunks, dim=1)], 1)


CHUNKS = pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 5], [LENGTH]], ids=str)


class TestWindow:
    @CHUNKS
    @pytest.mark.parametrize("window", [1, 3, 20])
    @torch.no_grad()
    def test_each_position_sees_the_last_ones_only(self, window: int, chunks: list[int]) -> None:
        attention = QKNormAttention(DIM, HEADS, p=3.0)
        x = sequence()
        expected = attention(x, attn_mask=causal_mask(LENGTH, LENGTH, window=window))
        assert torch.allclose(decoded(attention, x, KeyValueCache(window=window), chunks), expected, atol=1e-5)

    @torch.no_grad()
    def test_what_nobody_sees_is_forgotten(self) -> None:
        attention = QKNormAttention(DIM, HEADS)
        cache = KeyValueCache(window=8)
        decoded(attention, sequence(200), cache, [1] * 200)
        assert cache.length == 200
        assert cache._room is not None
        assert cache._room.keys.shape[2] <= 16

    @torch.no_grad()
    def test_beams_change_places_in_a_window(self) -> None:
        attention = QKNormAttention(DIM, HEADS)
        x, window = sequence(60), causal_mask(60, 60, window=5)
        rows = torch.tensor([2, 0, 0])
        cache = KeyValueCache(window=5)
        decoded(attention, x[:, :30], cache, [1] * 30)
        cache.reorder(rows)
        x = torch.cat([x[rows, :30], x[:, 30:]], 1)
        result = decoded(attention, x[:, 30:], cache, [1] * 30)
        assert torch.allclose(result, attention(x, attn_mask=window)[:, 30:], atol=1e-5)

    @torch.no_grad()
    def test_a_mask_for_all_positions_serves_in_a_window(self) -> None:
        attention = QKNormAttention(DIM, HEADS)
        x = sequence()
        real = (torch.arange(LENGTH) >= torch.tensor([0, 2, 5])[:, None])[:, None, None, :]
        cache = KeyValueCache(window=4)
        attention(x[:, :7], is_causal=True, attn_mask=real[..., :7], cache=cache)
        actual = attention(x[:, 7:], is_causal=True, attn_mask=real, cache=cache)
        expected = attention(x, attn_mask=real & causal_mask(LENGTH, LENGTH, window=4))[:, 7:]
        assert torch.allclose(actual, expected, atol=1e-5)

    @torch.no_grad()
    def test_cropping_to_where_the_window_is_forgotten_is_refused(self) -> None:
        attention = QKNormAttention(DIM, HEADS)
        cache = KeyValueCache(window=4)
        decoded(attention, sequence(40), cache, [1] * 40)
        with pytest.raises(ValueError, match="cannot be cropped to 10 positions"):
            cache.crop(10)


class TestFixedRoom:
    @CHUNKS
    @pytest.mark.parametrize("window", [None, 3])
    @torch.no_grad()
    def test_it_decodes_like_any_cache(self, window: int | None, chunks: list[int]) -> None:
        attention = QKNormAttention(DIM, HEADS, num_kv_heads=2)
        x = sequence()
        cache = KeyValueCache(max_length=16, window=window)
        expected = attention(x, attn_mask=causal_mask(LENGTH, LENGTH, window=window))
        assert torch.allclose(decoded(attention, x, cache, chunks), expected, atol=1e-5)
        assert cache.length == LENGTH

    @torch.no_grad()
    def test_positions_that_are_not_causal_see_each_other(self) -> None:
        attention = QKNormAttention(DIM, HEADS)
        x = sequence()
        assert torch.allclose(attention(x, cache=KeyValueCache(max_length=16)), attention(x), atol=1e-5)

    @torch.no_grad()
    def test_one_compiled_step_serves_all_positions(self) -> None:
        torch.compiler.reset()
        attention, x = QKNormAttention(DIM, HEADS), sequence()
        expected = attention(x, is_causal=True)
        compiled: list[torch.fx.GraphModule] = []

        def remember(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
            compiled.append(graph)
            return graph.forward

        step = torch.compile(attention, fullgraph=True, backend=remember)
        cache = KeyValueCache(max_length=LENGTH)
        attention(x[:, :3], is_causal=True, cache=cache)
        actual = [step(part, is_causal=True, cache=cache) for part in x[:, 3:].split(1, dim=1)]
        assert torch.allclose(torch.cat(actual, 1), expected[:, 3:], atol=1e-5)
        assert len(compiled) == 1

    @torch.no_grad()
    def test_beams_change_places(self) -> None:
        attention, x = QKNormAttention(DIM, HEADS), sequence()
        rows, cache = torch.tensor([2, 0, 0]), KeyValueCache(max_length=LENGTH)
        attention(x[:, :5], is_causal=True, cache=cache)
        cache.reorder(rows)
        result = attention(x[rows, 5:], is_causal=True, cache=cache)
        assert torch.allclose(result, attention(x, is_causal=True)[rows, 5:], atol=1e-5)
        with pytest.raises(ValueError, match="keeps its batch of 3, not 2"):
            cache.reorder(rows[:2])

    @torch.no_grad()
    def test_more_than_fits_is_refused(self) -> None:
        attention, cache = QKNormAttention(DIM, HEADS), KeyValueCache(max_length=12)
        attention(sequence(), cache=cache)
        with pytest.raises(ValueError, match="13 positions do not fit into a KeyValueCache with max_length=12"):
            attention(sequence(3), cache=cache)

    @torch.no_grad()
    def test_a_reset_keeps_the_room(self) -> None:
        attention, cache = QKNormAttention(DIM, HEADS), KeyValueCache(max_length=LENGTH)
        attention(sequence(), is_causal=True, cache=cache)
        assert cache._room is not None
        before = cache._room.keys.data_ptr()
        cache.reset()
        x = sequence()
        assert torch.allclose(attention(x, is_causal=True, cache=cache), attention(x, is_causal=True), atol=1e-5)
        assert cache._room.keys.data_ptr() == before


@ANY_CACHE
class TestTakingBack:
    @torch.no_grad()
    def test_a_draft_that_was_not_accepted_leaves_no_trace(self, options: dict[str, int]) -> None:
        attention = QKNormAttention(DIM, HEADS)
        x, draft, cache = sequence(), sequence(4), KeyValueCache(**options)
        attention(x[:, :5], is_causal=True, cache=cache)
        attention(draft, is_causal=True, cache=cache)
        cache.crop(5)
        assert cache.length == 5
        mask = causal_mask(LENGTH, LENGTH, window=options.get("window"))
        result = attention(x[:, 5:], is_causal=True, cache=cache)
        assert torch.allclose(result, attention(x, attn_mask=mask)[:, 5:], atol=1e-5)

    @torch.no_grad()
    def test_beams_can_be_cropped(self, options: dict[str, int]) -> None:
        attention, rows = QKNormAttention(DIM, HEADS), torch.tensor([1, 1, 0])
        x, cache = sequence(), KeyValueCache(**options)
        attention(x[:, :3], is_causal=True, cache=cache)
        cache.reorder(rows)
        attention(sequence(1), is_causal=True, cache=cache)
        cache.crop(3)
        result = attention(x[rows, 3:4], is_causal=True, cache=cache)
        assert torch.allclose(result, attention(x, is_causal=True)[rows, 3:4], atol=1e-5)

    @torch.no_grad()
    def test_after_a_reset_the_next_sequences_begin(self, options: dict[str, int]) -> None:
        attention, cache = QKNormAttention(DIM, HEADS), KeyValueCache(**options)
        attention(sequence(), is_causal=True, cache=cache)
        cache.reset()
        assert cache.length == 0
        x = sequence(5)
        assert torch.allclose(attention(x, is_causal=True, cache=cache), attention(x, is_causal=True), atol=1e-5)

    def test_it_may_be_taken_back_outside_inference_mode(self, options: dict[str, int]) -> None:
        cache, first, new = KeyValueCache(**options), some_key_values(3), some_key_values(2)
        with torch.inference_mode():
            cache.append(first)
        cache.crop(2)
        assert cache.length == 2
        with torch.inference_mode():
            cache.append(new)
        cache.reset()
        assert cache.length == 0
        cache.append(first)
        assert torch.equal(cache.held.keys, first.keys)

    @pytest.mark.parametrize("length", [-1, 11])
    @torch.no_grad()
    def test_more_than_there_is_cannot_be_kept(self, options: dict[str, int], length: int) -> None:
        attention, cache = QKNormAttention(DIM, HEADS), KeyValueCache(**options)
        attention(sequence(), is_causal=True, cache=cache)
        with pytest.raises(ValueError, match=f"a cache of 10 positions cannot be cropped to {length}"):
            cache.crop(length)


@pytest.mark.parametrize("name", ["window", "max_length"])
def test_a_cache_without_room_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} of a KeyValueCache must be at least 1"):
        KeyValueCache(**{name: 0})


def test_causal_masks_end_at_the_last_key() -> None:
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(2, 4, window=2).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert torch.equal(causal_mask(3, 5), torch.ones(3, 5).tril(2).bool())


@ANY_CACHE
def test_a_cache_works_on_tensors_without_values(options: dict[str, Any]) -> None:
    with FakeTensorMode(), torch.no_grad():
        attention, cache = QKNormAttention(DIM, HEADS), KeyValueCache(**options)
        prefilled = attention(torch.randn(2, 3, DIM), is_causal=True, cache=cache)
        assert prefilled.shape == (2, 3, DIM)
        assert attention(torch.randn(2, 1, DIM), cache=cache).shape == (2, 1, DIM)
