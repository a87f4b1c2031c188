"""The kernels of decoding and their twins in torch's operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from qknorm.attention.module import KeyValueCache, KeyValues, QKNormAttention
from qknorm.attention.norms import LpKind
from qknorm.ops import shared_attention
from qknorm.ops.attention import attend


def attended(cache: KeyValueCache, query: torch.Tensor, new: KeyValues, scale: float) -> torch.Tensor:
    """One position over what a cache holds, as a layer attends."""
    if not cache.is_shared:
        return attend(query, *cache.append(new), scale, enable_gqa=True)
    room, history = cache.append_shared(new)
    return shared_attention.attend_to_history(query, *room, history, scale)


@pytest.mark.usefixtures("_route")
class TestSharedMemory:
    LP = LpKind(p=3.0, per_head_scale=True)
    ENTRIES, LENGTHS = torch.tensor([0, 2, 2, 1]), torch.tensor([9, 4, 1])

    @staticmethod
    def attend(
        entries: torch.Tensor = ENTRIES,
        lengths: torch.Tensor = LENGTHS,
        dtype: torch.dtype = torch.float32,
        norm: Any = LP,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What it gives, and what the memory repeated and masked gives, in float64."""
        attention = QKNormAttention(32, 4, num_kv_heads=2, qk_norm=norm).to(dtype)
        query, memory = torch.randn(4, 1, 32, dtype=dtype), torch.randn(3, 9, 32, dtype=dtype)
        result = attention.attend_shared(query, attention.key_values(memory), entries, lengths)
        own = TestSharedMemory.ENTRIES
        mask = (torch.arange(9) < TestSharedMemory.LENGTHS[own][:, None])[:, None, None, :]
        return result, attention.double()(query.double(), memory.double()[own], attn_mask=mask)

    @torch.inference_mode()
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2), (torch.float64, 1e-10)]
    )
    @pytest.mark.parametrize("norm", [LP, "rms", None], ids=str)
    def test_it_is_the_memory_repeated_and_masked(self, norm: Any, dtype: torch.dtype, tolerance: float) -> None:
        actual, expected = self.attend(dtype=dtype, norm=norm)
        assert actual.dtype == dtype
        assert torch.allclose(actual.double(), expected, atol=tolerance)

    @torch.inference_mode()
    def test_half_precision_may_come_late(self) -> None:
        attention = QKNormAttention(32, 4)
        memory = attention.key_values(torch.randn(3, 9, 32))
        query = torch.randn(4, 1, 32)
        wide = attention.attend_shared(query, memory, self.ENTRIES, self.LENGTHS)
        with torch.autocast("cpu", torch.bfloat16):
            result = attention.attend_shared(query, memory, self.ENTRIES, self.LENGTHS)
        assert torch.allclose(result.float(), wide, atol=5e-2)

    def test_gradients_flow(self) -> None:
        attention = QKNormAttention(32, 4)
        query, memory = torch.randn(4, 1, 32), torch.randn(3, 9, 32, requires_grad=True)
        out = attention.attend_shared(query, attention.key_values(memory), self.ENTRIES, self.LENGTHS)
        mask = (torch.arange(9) < self.LENGTHS[self.ENTRIES][:, None])[:, None, None, :]
        expected = attention(query, memory[self.ENTRIES], attn_mask=mask)
        inputs = (memory, attention.q_proj.weight)
        torch.testing.assert_close(*(torch.autograd.grad(x.sum(), inputs) for x in (out, expected)))

    @torch.no_grad()
    def test_an_entry_or_a_position_that_does_not_exist_is_refused(self) -> None:
        for entry in (-1, 3, 10**9):
            with pytest.raises(ValueError, match=f"entries holds {entry}, but the memory has the entries 0 to 2"):
                self.attend(entries=torch.tensor([0, 2, entry, 1]))
        for length in (-1, 10):
            with pytest.raises(ValueError, match=f"lengths holds {length}, but a memory here has 0 to 9 positions"):
                self.attend(lengths=torch.tensor([9, length, 1]))

    @torch.no_grad()
    def test_nan_in_a_query_stays_visible(self) -> None:
        attention = QKNormAttention(32, 4)
        query = torch.randn(4, 1, 32)
        query[2] = torch.nan
        memory = attention.key_values(torch.randn(3, 9, 32))
        result = attention.attend_shared(query, memory, self.ENTRIES, self.LENGTHS)
        assert result[2].isnan().all()
        assert result[[0, 1, 3]].isfinite().all()


@pytest.mark.usefixtures("_route")
class TestReorderedCache:
    """A cache in float32 whose entries have changed places."""

    ROWS = torch.tensor([1, 0, 3, 3])

    @staticmethod
    def new(length: int, dtype: torch.dtype = torch.float32) -> KeyValues:
        return KeyValues(*torch.randn(2, 4, 2, length, 16).to(dtype).unbind(0))

    def cache_and_held(self) -> tuple[KeyValueCache, KeyValues]:
        cache, first = KeyValueCache(), self.new(3)
        cache.append(first)
        cache.reorder(self.ROWS)
        return cache, KeyValues(*(side[self.ROWS] for side in first))

    @torch.no_grad()
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-5), (torch.bfloat16, 5e-2)]
    )
    def test_a_step_may_be_of_another_type(self, dtype: torch.dtype, tolerance: float) -> None:
        cache, held = self.cache_and_held()
        query, new = torch.randn(4, 2, 1, 16).to(dtype), self.new(1, dtype)
        keys, values = (torch.cat([old, added.float()], 2) for old, added in zip(held, new, strict=True))
        actual = attended(cache, query, new, 1.0)
        assert actual.dtype == dtype
        expected = torch.softmax(query.float() @ keys.transpose(-1, -2), -1) @ values
        assert torch.allclose(actual.float(), expected, atol=tolerance)

    def test_a_query_gets_its_gradient(self) -> None:
        cache, held = self.cache_and_held()
        query, new = torch.randn(4, 2, 1, 16, requires_grad=True), self.new(1)
        keys, values = (torch.cat(both, 2) for both in zip(held, new, strict=True))
        expected = torch.softmax(query @ keys.transpose(-1, -2), -1) @ values
        actual = attended(cache, query, new, 1.0)
        torch.testing.assert_close(*(torch.autograd.grad(x.sum(), query) for x in (actual, expected)))


@pytest.mark.parametrize("learns", [True, False])
def test_fake_memories_are_attended_to(learns: bool) -> None:
    """For learning torch's operations do it, and the entries, which have no values, are not looked at."""
    with FakeTensorMode():
        query, memory = torch.randn(4, 4, 1, 8, requires_grad=learns), torch.randn(3, 2, 9, 8)
        entries, lengths = torch.zeros(4, dtype=torch.long), torch.zeros(3, dtype=torch.long)
        assert shared_attention.attend_to_shared(query, memory, memory, entries, lengths, 1.0).shape == query.shape
