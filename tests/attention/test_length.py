from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from qknorm import LogLength, QKNormAttention, causal_mask
from qknorm.attention.length import scaled_for_length
from tests.attention.test_cache import cache_of
from tests.attention.test_module import DIM, HEADS, LENGTH, sequence


def expected_weights(attention: QKNormAttention, x: Tensor, visible: Tensor) -> Tensor:
    """By hand: the logits of the same layer without scaling, times ln n / ln n₀ of what each query sees."""
    q = attention.q_norm(attention.q_proj(x).unflatten(-1, (HEADS, -1)).transpose(1, 2))
    logits = q @ attention.key_values(x).keys.transpose(-1, -2)
    factors = visible.sum(-1, keepdim=True).double().log() / math.log(1024)
    weights: Tensor = (logits.double() * factors).masked_fill(~visible, -math.inf).softmax(-1)
    return weights.nan_to_num().float()


class TestKeysThatAreSeen:
    CAUSAL = torch.ones(LENGTH, LENGTH).tril().bool()

    def attention(self) -> QKNormAttention:
        return QKNormAttention(DIM, HEADS, scale_init=40.0, length_scaling="log")

    @pytest.mark.parametrize("is_causal", [False, True])
    def test_all_or_those_before(self, is_causal: bool) -> None:
        attention, x = self.attention(), sequence()
        expected = expected_weights(attention, x, self.CAUSAL if is_causal else torch.ones_like(self.CAUSAL))
        assert torch.allclose(attention.weights(x, is_causal=is_causal), expected, atol=1e-5)

    @pytest.mark.parametrize("hidden", [None, -math.inf, torch.finfo(torch.float32).min])
    def test_those_that_are_not_padding(self, hidden: float | None) -> None:
        attention, x = self.attention(), sequence()
        real = (torch.arange(LENGTH) < torch.tensor([10, 7, 3])[:, None])[:, None, None, :]
        mask = real if hidden is None else torch.zeros(real.shape).masked_fill(~real, hidden)
        expected = expected_weights(attention, x, real & self.CAUSAL)
        assert torch.allclose(attention.weights(x, attn_mask=mask, is_causal=True), expected, atol=1e-5)

    @pytest.mark.parametrize("options", [{}, {"window": 4}, {"max_length": 16}], ids=str)
    @pytest.mark.parametrize("chunks", [[1] * LENGTH, [4, 1, 5]], ids=str)
    @torch.no_grad()
    def test_those_in_a_cache(self, options: dict[str, int], chunks: list[int]) -> None:
        attention, x, cache = self.attention(), sequence(), cache_of(options)
        actual = [attention(part, is_causal=True, cache=cache) for part in x.split(chunks, dim=1)]
        expected = attention(x, attn_mask=causal_mask(LENGTH, LENGTH, window=options.get("window")))
        assert torch.allclose(torch.cat(actual, 1), expected, atol=1e-5)

    @torch.no_grad()
    def test_those_of_a_memory_that_beams_share(self) -> None:
        attention, memory, rows = self.attention(), sequence(12), torch.randn(6, 1, DIM)
        entries, lengths = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([12, 9, 4])
        real = (torch.arange(12) < lengths[:, None])[entries][:, None, None, :]
        result = attention.attend_shared(rows, attention.key_values(memory), entries, lengths)
        assert torch.allclose(result, attention(rows, memory[entries], attn_mask=real), atol=1e-5)


def test_a_function_of_ones_own() -> None:
    q = torch.randn(2, 3, 5, 8)
    result = scaled_for_length(q, lambda seen: seen.sqrt(), 5, None, is_causal=True)
    assert torch.allclose(result, q * torch.arange(1.0, 6).sqrt()[:, None])
    assert result.dtype == q.dtype


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match='length_scaling must be "log"'):
        QKNormAttention(DIM, HEADS, length_scaling="linear")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 1 key"):
        LogLength(1.0)
