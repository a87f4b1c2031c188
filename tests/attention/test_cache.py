from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

from qknorm import FixedKeyValueCache, KeyValueCache, KeyValues, QKNormAttention, causal_mask
from tests.attention.test_module import DIM, HEADS, LENGTH, all_kinds, sequence

ANY_CACHE = pytest.mark.parametrize("options", [{}, {"window": 6}, {"max_length": 32}], ids=str)
CHUNKS = pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 5], [LENGTH]], ids=str)


def cache_of(options: dict[str, Any]) -> KeyValueCache:
    return FixedKeyValueCache(**options) if "max_length" in options else KeyValueCache(**options)


def decoded(attention: QKNormAttention, x: Tensor, cache: KeyValueCache, chunks: list[int]) -> Tensor:
    with torch.no_grad():
        return torch.cat([attention(part, is_causal=True, cache=cache) for part in x.split(chunks, dim=1)], 1)


def some_key_values(length: int, keys: int = 4, values: int = 4) -> KeyValues:
    return KeyValues(torch.randn(3, HEADS, length, keys), torch.randn(3, HEADS, length, values))


class TestDecoding:
    @all_kinds
    @CHUNKS
    def test_in_steps_it_is_decoding_at_once(self, kind: dict[str, Any], chunks: list[int]) -> None:
        attention, x, cache = QKNormAttention(DIM, HEADS, **kind).eval(), sequence(), KeyValueCache()
        assert torch.allclose(decoded(attention, x, cache, chunks), attention(x, is_causal=True), atol=1e-5)
        assert cache.length == LENGTH

    @CHUNKS
    @pytest.mark.parametrize("window", [None, 1, 3, 20])
    @pytest.mark.parametrize("room", [{}, {"max_length": 16}], ids=str)
    def test_each_position_sees_those_of_its_window(
        self, room: dict[str, int], window: int | None, chunks: list[int]
    ) -> None:
        attention, x, cache = QKNormAttention(DIM, HEADS, num_kv_heads=2, p=3.0), sequence(), cache_of(room)
        cache.window = window
        expected = attention(x, attn_mask=causal_mask(LENGTH, LENGTH, window=window))
        assert torch.allclose(decoded(attention, x, cache, chunks), expected, atol=1e-5)

    @torch.no_grad()
    @pytest.mark.parametrize("floats", [False, True])
    @ANY_CACHE
    def test_a_mask_for_all_positions_hides_left_padding(self, options: dict[str, int], floats: bool) -> None:
        attention, x, cache = QKNormAttention(DIM, HEADS), sequence(), cache_of(options)
        visible = (torch.arange(LENGTH) >= torch.tensor([0, 2, 5])[:, None])[:, None, None, :]
        expected = attention(x, attn_mask=visible & causal_mask(LENGTH, LENGTH, window=options.get("window")))
        mask = torch.zeros(visible.shape).masked_fill(~visible, -math.inf) if floats else visible
        room = options.get("max_length", 0)
        for part in (slice(0, 6), slice(6, 7), slice(7, LENGTH)):
            given = torch.nn.functional.pad(mask, (0, max(0, room - LENGTH))) if room else mask[..., : part.stop]
            assert torch.allclose(
                attention(x[:, part], is_causal=True, attn_mask=given, cache=cache), expected[:, part], atol=1e-5
            )

    @ANY_CACHE
    @pytest.mark.parametrize("chunks", [[1] * 10, [4, 1, 5]], ids=str)
    def test_beams_change_places(self, options: dict[str, int], chunks: list[int]) -> None:
        attention, x, rows, cache = (
            QKNormAttention(DIM, HEADS),
            sequence(20),
            torch.tensor([2, 0, 0]),
            cache_of(options),
        )
        decoded(attention, x[:, :10], cache, [1] * 10)
        cache.reorder(rows)
        x = torch.cat([x[rows, :10], x[:, 10:]], 1)
        expected = attention(x, attn_mask=causal_mask(20, 20, window=options.get("window")))[:, 10:]
        assert torch.allclose(decoded(attention, x[:, 10:], cache, chunks), expected, atol=1e-5)

    def test_beams_may_become_more_or_fewer(self) -> None:
        attention, x, cache = QKNormAttention(DIM, HEADS, p=3.0), sequence(), KeyValueCache()
        cache.reorder(torch.tensor([0, 0]))  # nothing is held yet
        decoded(attention, x[:, :5], cache, [5])
        for rows in (torch.tensor([2, 2, 0, 1]), torch.tensor([3, 1])):
            cache.reorder(rows)
            x = x[rows]
        expected = attention(x, is_causal=True)[:, 5:]
        assert torch.allclose(decoded(attention, x[:, 5:], cache, [1, 1, 3]), expected, atol=1e-5)

    def test_a_precomputed_memory_serves_every_step(self) -> None:
        attention, x, memory = QKNormAttention(DIM, HEADS, num_kv_heads=2), sequence(), sequence(17)
        prepared = attention.key_values(memory)
        steps = [attention(step, prepared) for step in x.split(1, dim=1)]
        assert torch.allclose(torch.cat(steps, 1), attention(x, memory), atol=1e-5)

    @ANY_CACHE
    @pytest.mark.parametrize("new", [1, 2])
    @pytest.mark.parametrize("halved", ["first", "then"])
    @torch.no_grad()
    def test_some_positions_may_come_under_autocast(self, options: dict[str, int], new: int, halved: str) -> None:
        attention, x, cache = QKNormAttention(DIM, HEADS), sequence(), cache_of(options)
        result, rows = x, torch.tensor([2, 0, 0])
        for part, name in ((x[:, :4], "first"), (x[:, 4 : 4 + new], "then")):
            with torch.autocast("cpu", torch.bfloat16, enabled=name == halved):
                result = attention(part, is_causal=True, cache=cache)
            cache.reorder(rows)
        expected = attention(torch.cat([x[rows, :4], x[:, 4 : 4 + new]], 1), is_causal=True)[:, 4:]
        assert torch.allclose(result.float(), expected, atol=5e-2)

    @ANY_CACHE
    def test_tensors_need_no_values(self, options: dict[str, Any]) -> None:
        with FakeTensorMode(), torch.no_grad():
            attention, cache = QKNormAttention(DIM, HEADS), cache_of(options)
            for length in (3, 1):
                x = torch.randn(2, length, DIM)
                assert attention(x, is_causal=True, cache=cache).shape == x.shape


class TestHeld:
    def test_keys_are_kept_normalised_and_without_g(self) -> None:
        attention, cache = QKNormAttention(DIM, HEADS, p=3.0, scale_init=50.0), KeyValueCache()
        decoded(attention, sequence(), cache, [LENGTH])
        assert torch.allclose(cache.held.keys.norm(p=3, dim=-1), torch.ones(1), atol=1e-5)

    @ANY_CACHE
    def test_it_goes_on_in_another_cache_and_stays_as_it_was(self, options: dict[str, int]) -> None:
        attention, x = QKNormAttention(DIM, HEADS), sequence(6)
        cache, other = cache_of(options), cache_of(options)
        decoded(attention, x[:, :5], cache, [5])
        held = cache.held
        copy = KeyValues(*(side.clone() for side in held))
        other.append(held)
        found, expected = (decoded(attention, x[:, 5:], each, [1]) for each in (other, cache))
        torch.testing.assert_close(found, expected)
        cache.crop(1)
        decoded(attention, x, cache, [6])
        assert all(torch.equal(kept, before) for kept, before in zip(held, copy, strict=True))

    @ANY_CACHE
    def test_values_may_have_another_size_than_keys(self, options: dict[str, int]) -> None:
        cache, first, rows = cache_of(options), some_key_values(3, 4, 6), torch.tensor([2, 0, 0])
        cache.append(first)
        cache.reorder(rows)
        assert all(torch.equal(side, given[rows]) for side, given in zip(cache.held, first, strict=True))
        with pytest.raises(ValueError, match=r"of keys and values\) \(3, 4, 4, 6\), not \(3, 4, 4, 5\)"):
            cache.append(some_key_values(1, 4, 5))

    def test_an_empty_cache_holds_nothing(self) -> None:
        with pytest.raises(ValueError, match="holds nothing"):
            _ = KeyValueCache().held

    def test_what_nobody_sees_is_forgotten(self) -> None:
        cache = KeyValueCache(window=8)
        decoded(QKNormAttention(DIM, HEADS), sequence(200), cache, [1] * 200)
        assert cache.length == 200
        assert cache._room is not None
        assert cache._room.keys.shape[2] <= 16
        with pytest.raises(ValueError, match="cannot be cropped to 10 positions"):
            cache.crop(10)

    @pytest.mark.parametrize("options", [{}, {"max_length": LENGTH + 1}], ids=str)
    def test_neither_a_reorder_nor_the_next_position_moves_it(self, options: dict[str, int]) -> None:
        attention, cache = QKNormAttention(DIM, HEADS), cache_of(options)
        decoded(attention, sequence(), cache, [LENGTH])
        assert cache._room is not None
        before = cache._room.keys.data_ptr()
        cache.reorder(torch.tensor([0, 1, 2]))
        decoded(attention, sequence(1), cache, [1])
        if options:
            cache.reset()
            decoded(attention, sequence(), cache, [LENGTH])
        assert cache._room.keys.data_ptr() == before


class TestFixedRoom:
    @torch.no_grad()
    def test_positions_that_are_not_causal_see_each_other(self) -> None:
        attention, x = QKNormAttention(DIM, HEADS), sequence()
        assert torch.allclose(attention(x, cache=FixedKeyValueCache(16)), attention(x), atol=1e-5)

    @torch.no_grad()
    def test_one_compiled_step_serves_all_positions(self) -> None:
        torch.compiler.reset()
        attention, x = QKNormAttention(DIM, HEADS), sequence()
        expected = attention(x, is_causal=True)
        backend = CompileCounter()
        step = torch.compile(attention, fullgraph=True, backend=backend)
        cache = FixedKeyValueCache(LENGTH)
        attention(x[:, :3], is_causal=True, cache=cache)
        actual = [step(part, is_causal=True, cache=cache) for part in x[:, 3:].split(1, dim=1)]
        assert torch.allclose(torch.cat(actual, 1), expected[:, 3:], atol=1e-5)
        assert backend.frame_count == 1

    @torch.no_grad()
    def test_more_than_fits_is_refused(self) -> None:
        attention, cache = QKNormAttention(DIM, HEADS), FixedKeyValueCache(12)
        attention(sequence(), cache=cache)
        with pytest.raises(ValueError, match="13 positions do not fit into a FixedKeyValueCache of 12"):
            attention(sequence(3), cache=cache)
        with pytest.raises(ValueError, match="keeps its batch of 3, not 2"):
            cache.reorder(torch.tensor([0, 1]))


@ANY_CACHE
class TestTakingBack:
    @torch.no_grad()
    def test_a_draft_that_was_not_accepted_leaves_no_trace(self, options: dict[str, int]) -> None:
        attention, x, cache = QKNormAttention(DIM, HEADS), sequence(), cache_of(options)
        rows = torch.tensor([1, 1, 0])
        decoded(attention, x[:, :5], cache, [5])
        cache.reorder(rows)
        decoded(attention, sequence(4), cache, [1, 3])
        cache.crop(5)
        assert cache.length == 5
        expected = attention(x[rows], attn_mask=causal_mask(LENGTH, LENGTH, window=options.get("window")))[:, 5:]
        assert torch.allclose(decoded(attention, x[rows, 5:], cache, [5]), expected, atol=1e-5)

    def test_it_may_be_taken_back_outside_inference_mode(self, options: dict[str, int]) -> None:
        cache, first, new = cache_of(options), some_key_values(3), some_key_values(2)
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
    def test_more_than_there_is_cannot_be_kept(self, options: dict[str, int], length: int) -> None:
        cache = cache_of(options)
        decoded(QKNormAttention(DIM, HEADS), sequence(), cache, [LENGTH])
        with pytest.raises(ValueError, match=f"a cache of 10 positions cannot be cropped to {length}"):
            cache.crop(length)


def test_training_with_a_cache_is_refused() -> None:
    with pytest.raises(RuntimeError, match="for inference"):
        QKNormAttention(DIM, HEADS)(sequence(), cache=KeyValueCache())


def test_a_cache_is_not_for_cross_attention() -> None:
    with pytest.raises(ValueError, match="cache is for self-attention"):
        QKNormAttention(DIM, HEADS)(sequence(), sequence(), cache=KeyValueCache())


@pytest.mark.parametrize("length", [5, 16])
@pytest.mark.parametrize(("first", "then"), [(4, 1), (1, 4)])
def test_another_batch_size_is_refused_and_not_broadcast(first: int, then: int, length: int) -> None:
    attention, cache = QKNormAttention(DIM, HEADS), KeyValueCache()
    decoded(attention, torch.randn(first, length, DIM), cache, [length])
    with pytest.raises(ValueError, match=r"the cache holds .* reorder\(rows\) changes the batch"):
        decoded(attention, torch.randn(then, 1, DIM), cache, [1])


def test_a_cache_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="window of a KeyValueCache must be at least 1, not 0"):
        KeyValueCache(window=0)
    with pytest.raises(ValueError, match="max_length of a FixedKeyValueCache must be at least 1, not 0"):
        FixedKeyValueCache(max_length=0)


def test_causal_masks_end_at_the_last_key() -> None:
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(2, 4, window=2).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert torch.equal(causal_mask(3, 5), torch.ones(3, 5).tril(2).bool())
