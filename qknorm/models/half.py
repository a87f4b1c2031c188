"""Half precision: torch's autocast, and on a CPU the products of linear layers and of the loss in bfloat16 alone.

torch's autocast rounds everything between the products too, where a CPU gains nothing and its kernels are slower.
Processors with bfloat16 products of their own (AVX512_BF16, AMX) train 1.4 times as fast with this or more; others are
slower, so the planner measures before it chooses; a run that was planned elsewhere still goes on there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from qknorm.models.layers import VocabularyLoss
from qknorm.ops.products import product

_DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """What a recipe's precision is on a GPU; on a CPU nothing, since it has `use_half_products`."""
    is_used = precision != "float32" and device.type != "cpu"
    return torch.autocast(device.type, _DTYPES[precision], enabled=is_used)


class HalfLinear(nn.Linear):
    """A linear layer with the parameters of another and products of bfloat16 numbers, forwards and backwards."""

    def __init__(self, exact: nn.Linear) -> None:
        super().__init__(exact.in_features, exact.out_features, exact.bias is not None, device="meta")
        self.weight, self.bias = exact.weight, exact.bias

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = _HalfProduct.apply(input, self.weight, self.bias)
        return out


class HalfVocabularyLoss(VocabularyLoss):
    """The loss with products of bfloat16 numbers where it is learned from; one that is only reported is exact."""

    def forward(self, states: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float) -> Tensor:
        return super().forward(states.bfloat16() if self.training else states, weight, bias, target, smoothing)


def use_half_products(model: nn.Module) -> None:
    """Put modules that compute like this in the place of a model's linear layers and loss; its parameters stay."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, HalfLinear(child))
            elif isinstance(child, VocabularyLoss):
                setattr(module, name, HalfVocabularyLoss().train(child.training))


class _HalfProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, halved = x.reshape(-1, x.shape[-1]).bfloat16(), weight.bfloat16()
        ctx.save_for_backward(rows, halved)
        ctx.shape, ctx.has_bias = x.shape, bias is not None
        out = product(rows, halved.t()).float()
        return (out if bias is None else out.add_(bias)).view(*x.shape[:-1], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        rows, halved = ctx.saved_tensors
        d_out = d_out.reshape(-1, d_out.shape[-1])
        d_half = d_out.bfloat16()
        d_x, d_weight = product(d_half, halved).float(), product(d_half.t(), rows).float()
        return d_x.view(ctx.shape), d_weight, d_out.sum(0) if ctx.has_bias else None
