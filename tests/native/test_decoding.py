"""The kernels of decoding and their twins in torch's operations."""

from __future__ import annotations

import pytest
import torch

from qknorm.attention.module import KeyValueCache, KeyValues, QKNorm, QKNormAttention
from qknorm.native import decoding

needs_kernel = pytest.mark.skipif(decoding._kernels() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize("use_kernel", [pytest.param(True, marks=needs_kernel), False])
@pytest.mark.parametrize(("rows", "classes", "wanted"), [(1, 3, 3), (7, 1000, 6), (64, 5003, 6)])
def test_the_likeliest_are_those_of_a_sort(
    rows: int, classes: int, wanted: int, use_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not use_kernel:
        monkeypatch.setattr(decoding, "_kernels", lambda: None)
    torch.manual_seed(0)
    logits = torch.randn(rows, classes) * 4
    values, places, sums = decoding.likeliest(logits, wanted)
    expected, order = logits.double().log_softmax(-1).sort(descending=True)
    assert torch.equal(places, order[:, :wanted])
    assert torch.allclose(values.double(), expected[:, :wanted], atol=1e-5)
    assert torch.allclose(sums.double(), logits.double().logsumexp(-1), atol=1e-5)


@needs_kernel
def test_of_equal_pieces_the_first_is_taken() -> None:
    _, places, _ = decoding.likeliest(torch.zeros(2, 300), 5)
    assert places.tolist() == [[0, 1, 2, 3, 4]] * 2


@needs_kernel
def test_impossible_pieces_stay_impossible() -> None:
    logits = torch.full((1, 100), -torch.inf)
    logits[0, 70] = 2.0
    values, places, _ = decoding.likeliest(logits, 3)
    assert places[0, 0] == 70
    torch.testing.assert_close(values, torch.tensor([[0.0, -torch.inf, -torch.inf]]), atol=1e-6, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize(("key_heads", "row"), [(1, 16), (2, 32), (4, 64), (4, 7)])
def test_a_cache_with_a_history_attends_as_one_that_is_moved(
    key_heads: int, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty steps, in which beams change places and later half of them leave."""

    def outputs() -> list[torch.Tensor]:
        torch.manual_seed(0)
        cache, batch, found = KeyValueCache(), 6, []
        for step in range(40):
            query = torch.randn(batch, 4, 1, row)
            new = KeyValues(*torch.randn(2, batch, key_heads, 1, row).unbind(0))
            found.append(cache.attend(query, new, 0.5))
            if step == 25:
                batch = 3
            cache.reorder(torch.randint(len(query), (batch,)))
        return found

    ours = outputs()
    monkeypatch.setattr(decoding, "can_serve", lambda *_: False)
    for fast, plain in zip(ours, outputs(), strict=True):
        assert torch.allclose(fast, plain, atol=1e-5)


@torch.inference_mode()
def test_a_history_may_be_followed_by_several_positions_at_once() -> None:
    torch.manual_seed(0)
    cache = KeyValueCache()
    first, second = (KeyValues(*torch.randn(2, 4, 2, length, 8).unbind(0)) for length in (3, 5))
    rows = torch.tensor([2, 2, 0, 1])
    cache.append(first)
    cache.reorder(rows)
    filled = cache.append(second)
    for side in range(2):
        assert torch.equal(filled[side], torch.cat([first[side][rows], second[side]], 2))


@needs_kernel
@torch.inference_mode()
@pytest.mark.parametrize("qk_norm", ["lp", "rms", None])
def test_a_shared_memory_is_the_memory_repeated_and_masked(qk_norm: QKNorm | None) -> None:
    torch.manual_seed(0)
    attention = QKNormAttention(32, 4, num_kv_heads=2, qk_norm=qk_norm)
    query, memory = torch.randn(7, 1, 32), torch.randn(3, 9, 32)
    entries, lengths = torch.tensor([0, 2, 2, 1, 0, 1, 1]), torch.tensor([9, 4, 1])
    mask = (torch.arange(9) < lengths[entries][:, None])[:, None, None, :]
    expected = attention(query, memory[entries], attn_mask=mask)
    shared = attention.attend_shared(query, attention.key_values(memory), entries, lengths)
    assert torch.allclose(shared, expected, atol=1e-5)
