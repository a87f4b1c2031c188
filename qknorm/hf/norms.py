"""Norms of queries and keys that some families have and `QKNormAttention` by itself has not.

Tensors are (batch, heads, length, head_dim), as for the norms of `qknorm.attention.norms`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qknorm.ops.rotary import RotaryTables, rotate


class RotaryFirstRMSNorm(nn.RMSNorm):
    """RMSNorm of each head after it was rotated, as Llama 4, NanoChat and HunYuan have it."""

    rotates = True

    def forward(self, x: Tensor, rotary: RotaryTables | None = None) -> Tensor:
        return super().forward(x if rotary is None else rotate(x, rotary)).to(x.dtype)


class OffsetRMSNorm(nn.RMSNorm):
    """RMSNorm of each head with the factor offset + weight, as Gemma has it with an offset of 1.

    The sum is made at every call and in float32 or wider: in bfloat16, 1 + weight keeps few digits of the weight.
    """

    weight: nn.Parameter

    def __init__(
        self,
        head_dim: int,
        eps: float,
        offset: float,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.offset = offset
        super().__init__(head_dim, eps, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, 1 - self.offset)

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        return F.rms_norm(x.to(wide), x.shape[-1:], self.weight.to(wide) + self.offset, self.eps).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, offset={self.offset:g}"


class AllHeadsRMSNorm(nn.RMSNorm):
    """RMSNorm over all heads of a position together, as OLMo 2 has it: one head may be longer than another."""

    def forward(self, x: Tensor) -> Tensor:
        together = x.transpose(1, 2).flatten(2)  # (batch, length, heads · head_dim)
        apart: Tensor = super().forward(together).unflatten(2, (x.shape[1], x.shape[3])).transpose(1, 2)
        return apart


class PerHeadLayerNorm(nn.Module):
    """LayerNorm of each head with weights, and biases if asked for, of its own: (heads, head_dim)."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        eps: float,
        bias: bool,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(num_heads, head_dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros_like(self.weight)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        normalized = F.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight[:, None]
        return normalized if self.bias is None else normalized + self.bias[:, None]

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.eps}, bias={self.bias is not None}"


@dataclass(frozen=True)
class Llama4Length:
    """1 + attn_scale · ln(1 + ⌊n/floor_scale⌋): Llama 4's factor of g where positions are not rotary."""

    attn_scale: float
    floor_scale: float

    def __call__(self, seen: Tensor) -> Tensor:
        return torch.log1p(torch.floor(seen / self.floor_scale)) * self.attn_scale + 1
